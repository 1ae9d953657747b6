"""A gateway's doors without its workers, for `bench.webhooks`: `hooks CONFIG [unstored]`.

With `unstored` the webhook listener does all that it ever does, but no transaction is run and no
thread is woken: it is what the same server could answer if nothing had to be stored.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

from ductile.config import load
from ductile.engine.gateway import Gateway
from ductile.engine.ingress.webhook import AcceptedWebhook
from ductile.http.middleware.loop_queue import LoopQueue, Receiver
from ductile.http.server.open import open_listeners
from ductile.log import configure


def accept_unstored(_queue: LoopQueue, _ledger: Any, _work: Any, receiver: Receiver) -> None:
    receiver(AcceptedWebhook("00000000-0000-7000-8000-000000000000"), None)


def main(config: str, *how: str) -> None:
    configure("error", "json")
    gateway = Gateway(load(Path(config), environ=os.environ), environ=os.environ)
    gateway.open()
    if how == ("unstored",):
        LoopQueue.submit = accept_unstored  # type: ignore[method-assign,assignment]
    server = open_listeners(gateway)
    server.start()
    # As `system start` does: collections of the objects made at the start would stop all threads.
    gc.freeze()
    print(next(d.socket.getsockname()[1] for d in server.listeners if d.name == "webhooks"))
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()
    gateway.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
