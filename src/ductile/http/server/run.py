"""A gateway in the foreground, from its start to the signal that ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping

from ductile.config import Loaded
from ductile.core.values.redact import Redactor
from ductile.engine.control import Request
from ductile.engine.gateway import Gateway
from ductile.engine.observability.liveness import Liveness
from ductile.engine.observability.systemd import Notifier, watched
from ductile.errors import Refused
from ductile.http.app import api_app, local_app
from ductile.http.middleware.context import AppContext
from ductile.http.server import fd_limits
from ductile.http.server.connection_limit import ConnectionLimiter
from ductile.http.server.listeners import Door, HttpServer, bind_local, bind_tcp
from ductile.log import configure, logger
from ductile.plugins.environment import FORBIDDEN


def serve(
    loaded: Loaded,
    *,
    environ: Mapping[str, str],
    ready: Callable[[Gateway], None] | None = None,
) -> int:
    """Run until SIGTERM or SIGINT; the exit code."""
    service = loaded.settings.service
    configure(service.log_level, service.log_format, Redactor(loaded.secrets))
    _log_crashes()
    gateway = Gateway(loaded, environ=environ)
    notifier = Notifier.of(environ, os.getpid())
    gateway.around_reload = notifier.reloading
    for name in FORBIDDEN:
        os.environ.pop(name, None)
    gateway.requests.take_signals(
        {
            signal.SIGTERM: Request.STOP,
            signal.SIGINT: Request.STOP,
            signal.SIGHUP: Request.RELOAD,
        }
    )
    log = logger("gateway")
    try:
        gateway.open()
        fd_limits.raise_limit()
        server = open_doors(gateway)
        gateway.start()
        server.start()
        log.info(
            "ready",
            workers=gateway.workers,
            plugins=len(gateway.compiled.plans),
            state_dir=str(gateway.state_dir),
            **{door.name: door.place for door in server.doors[1:]},
        )
        if ready is not None:
            ready(gateway)
        with watched(notifier, Liveness(gateway, [("the HTTP loop", server.ask)])):
            gateway.run()
        log.info("stopping")
        notifier.stopping(gateway.compiled.settings.service.shutdown_grace)
        gateway.stop()
        server.stop()
        gateway.socket_path.unlink(missing_ok=True)
    finally:
        gateway.close()
    log.info("stopped")
    return 0 if gateway.failure is None else 1


def _log_crashes() -> None:
    """What nobody caught goes to the log as well: redacted, and on a line of its own."""
    log = logger("crash")

    def uncaught(_type: object, error: BaseException, _trace: object) -> None:
        log.crash("an error that nobody caught", error)

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            name = args.thread.name if args.thread else None
            log.crash("a thread ended by an error", args.exc_value, thread=name)

    sys.excepthook = uncaught
    threading.excepthook = in_thread


def open_doors(gateway: Gateway) -> HttpServer:
    """The local socket, and the listeners that the configuration wants."""
    settings, app_context = gateway.compiled.settings, AppContext(gateway)
    most = fd_limits.places(1 + settings.api.enabled + settings.webhooks_enabled)
    local = bind_local(gateway.socket_path)
    doors = [Door("local", local_app(gateway, app_context), local, ConnectionLimiter(most))]
    try:
        if settings.api.enabled:
            listener = bind_tcp(settings.api.address)
            doors.append(Door("api", api_app(app_context), listener, ConnectionLimiter(most)))
        if settings.webhooks_enabled:
            from ductile.http.routes.webhooks import Webhooks

            listener = bind_tcp(settings.webhooks.address)
            doors.append(Door("webhooks", Webhooks(app_context), listener, ConnectionLimiter(most)))
    except Refused:
        for door in doors:
            door.listener.close()
        raise
    return HttpServer(doors, closing=app_context.close)
