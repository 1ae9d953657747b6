"""A gateway in the foreground, from its start to the signal that ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from types import FrameType

from ductile.config import Loaded
from ductile.http.app import local_app
from ductile.http.server import HttpServer, bind_local
from ductile.runtime.gateway import Gateway, Request
from ductile.runtime.log import configure, logger


def serve(
    loaded: Loaded,
    *,
    environ: Mapping[str, str],
    ready: Callable[[Gateway], None] | None = None,
) -> int:
    """Run until SIGTERM or SIGINT; the exit code."""
    service = loaded.settings.service
    configure(service.log_level, service.log_format)
    gateway = Gateway(loaded, environ=environ)

    def asking(request: Request) -> Callable[[int, FrameType | None], None]:
        return lambda _signal, _frame: gateway.ask(request)

    signal.signal(signal.SIGTERM, asking(Request.STOP))
    signal.signal(signal.SIGINT, asking(Request.STOP))
    signal.signal(signal.SIGHUP, asking(Request.RELOAD))
    log = logger("gateway")
    try:
        gateway.open()
        server = HttpServer(local_app(gateway), bind_local(gateway.socket_path))
        gateway.start()
        server.start()
        log.info(
            "ready",
            workers=gateway.workers,
            plugins=len(gateway.blueprint.plans),
            state_dir=str(gateway.state_dir),
        )
        if ready is not None:
            ready(gateway)
        gateway.run()
        log.info("stopping")
        gateway.stop()
        server.stop()
        gateway.socket_path.unlink(missing_ok=True)
    finally:
        gateway.close()
    log.info("stopped")
    return 0 if gateway.failure is None else 1
