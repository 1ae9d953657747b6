"""Free ports for programs that cannot report which one they have bound."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST = 10_000


def find_free_port() -> int:
    """A port of loopback that no process uses.

    Below the range from which the system chooses ports, so that no connection takes it before the
    program binds it.
    """
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = random.randrange(LOWEST, int(limits[0]))
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
