"""A gateway's doors without its workers, for `bench.webhooks`: `hooks CONFIG [unstored]`.

With `unstored` the webhook listener does all that it ever does, but hands the delivery to
nobody: it is what the same server could answer if nothing had to be kept.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ductile.config import load
from ductile.engine.gateway import Gateway
from ductile.engine.ingress.webhook import AcceptedWebhook
from ductile.http.routes import webhooks
from ductile.http.server.run import open_listeners
from ductile.log import configure


async def kept_nowhere(_gateway: Gateway, _work: Any) -> AcceptedWebhook:
    return AcceptedWebhook("00000000-0000-7000-8000-000000000000")


def main(config: str, *how: str) -> None:
    configure("error", "json")
    if how == ("unstored",):
        webhooks.write_ledger = kept_nowhere  # type: ignore[assignment]
    gateway = Gateway(load(Path(config), environ=os.environ), environ=os.environ)
    gateway.open()
    server = open_listeners(gateway)
    server.start()
    print(next(d.socket.getsockname()[1] for d in server.listeners if d.name == "webhooks"))
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()
    gateway.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
