"""Runs a gateway in the foreground, from its start to the signal that ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping

from ductile.config import Loaded
from ductile.config.models.plugin import RESERVED_VARIABLES
from ductile.core.values.redact import Redactor
from ductile.engine.control import ControlRequest
from ductile.engine.gateway import Gateway
from ductile.engine.observability.liveness import Liveness
from ductile.engine.observability.systemd import Notifier, report_ready
from ductile.http.server import fd_limits
from ductile.http.server.open import open_listeners
from ductile.log import configure, logger
from ductile.runner.isolation import forbid_inspection


def serve(
    loaded: Loaded,
    *,
    environ: Mapping[str, str],
    ready: Callable[[Gateway], None] | None = None,
) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    service = loaded.settings.service
    configure(service.log_level, service.log_format, Redactor(loaded.secrets))
    _log_crashes()
    forbid_inspection()
    gateway = Gateway(loaded, environ=environ, owns_process=True)
    notifier = Notifier.from_environment(environ, os.getpid())
    gateway.around_reload = notifier.reloading
    for name in RESERVED_VARIABLES:
        os.environ.pop(name, None)
    gateway.requests.handle_signals(
        {
            signal.SIGTERM: ControlRequest.STOP,
            signal.SIGINT: ControlRequest.STOP,
            signal.SIGHUP: ControlRequest.RELOAD,
        }
    )
    log = logger("gateway")
    try:
        gateway.open()
        fd_limits.raise_limit()
        server = open_listeners(gateway)
        gateway.start()
        server.start()
        log.info(
            "ready",
            workers=gateway.workers,
            plugins=len(gateway.compiled.plans),
            state_dir=str(gateway.state_dir),
            **{listener.name: listener.address for listener in server.listeners[1:]},
        )
        if ready is not None:
            ready(gateway)
        with report_ready(notifier, Liveness(gateway, [("the HTTP loop", server.ping)])):
            gateway.run()
        log.info("stopping")
        notifier.send_stopping(gateway.compiled.settings.service.shutdown_grace)
        gateway.stop()
        server.stop()
        gateway.socket_path.unlink(missing_ok=True)
    finally:
        gateway.close()
    log.info("stopped")
    return 0 if gateway.failure is None else 1


def _log_crashes() -> None:
    """Log uncaught errors too: redacted, each on a line of its own."""
    log = logger("crash")

    def uncaught(_type: object, error: BaseException, _trace: object) -> None:
        log.crash("uncaught error", error)

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            name = args.thread.name if args.thread else None
            log.crash("thread terminated by an error", args.exc_value, thread=name)

    sys.excepthook = uncaught
    threading.excepthook = in_thread
