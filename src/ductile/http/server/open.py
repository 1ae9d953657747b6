"""Opens the listeners of a configuration, and replaces those that a reload changes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.config import Settings
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.gateway import Gateway
from ductile.errors import ConfigError, Path, Problem, Refused, dotted
from ductile.http.app import api_app, local_app
from ductile.http.middleware.context import AppContext
from ductile.http.server import fd_limits
from ductile.http.server.connection_limit import ConnectionLimiter
from ductile.http.server.listeners import HttpServer, Listener, bind_local, bind_tcp
from ductile.log import logger

MOST_LISTENERS = 3
"""The local socket, the API and webhooks: a reload may open those that are closed at the start."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A listener that the configuration enables."""

    address: tuple[str, int]
    setting: Path
    make_app: Callable[[], Callable[..., Any]]


def open_listeners(gateway: Gateway) -> HttpServer:
    """Bind the local socket and the listeners that the configuration enables."""
    app_context = AppContext(gateway)
    most = fd_limits.connections_per_listener(MOST_LISTENERS)
    app_context.limit_open_requests(most)
    path = gateway.socket_path
    app = local_app(gateway, app_context)
    opened = [Listener("local", app, bind_local(path), ConnectionLimiter(most), path)]
    try:
        for name, wanted in _list_wanted(gateway.compiled.settings, app_context).items():
            opened.append(_open(name, wanted, most))
    except Refused as error:
        _close(opened)
        raise _explain_start(error, wanted, gateway.compiled) from error
    server = HttpServer(opened, on_stop=app_context.close)
    gateway.around_adoption = ListenerReload(server, app_context, most)
    return server


def _list_wanted(settings: Settings, app_context: AppContext) -> Mapping[str, _Wanted]:
    wanted: dict[str, _Wanted] = {}
    if settings.api.enabled:
        wanted["api"] = _Wanted(
            settings.api.address, ("api", "listen"), lambda: api_app(app_context)
        )
    if settings.webhooks_enabled:
        wanted["webhooks"] = _Wanted(
            settings.webhooks.address, ("webhooks", "listen"), lambda: _webhooks_app(app_context)
        )
    return wanted


def _webhooks_app(app_context: AppContext) -> Callable[..., Any]:
    from ductile.http.routes.webhooks import Webhooks

    return Webhooks(app_context)


def _open(name: str, wanted: _Wanted, most: int) -> Listener:
    bound = bind_tcp(wanted.address)
    return Listener(
        name, wanted.make_app(), bound, ConnectionLimiter(most), configured=wanted.address
    )


def _close(listeners: list[Listener]) -> None:
    for listener in listeners:
        listener.socket.close()


def _explain_start(error: Refused, wanted: _Wanted, compiled: CompiledConfig) -> Refused:
    """The refusal with its setting and, of a port that is in use, its process and a free port."""
    file, line, _ = compiled.loaded.locate(wanted.setting)
    key, (host, port), message = dotted(wanted.setting), wanted.address, error.message
    place = f" ({key}, {file}:{line})" if file else f" ({key})"
    if error.details["errno"] != errno.EADDRINUSE:
        return Refused(f"{message}{place}")
    from ductile.operations.doctor.locks import find_free_port, find_listener

    holder = find_listener(port)
    run = f"ductile config set {key} {host}:{find_free_port(host, port, compiled.settings)}"
    return Refused(f"{message}{f' by {holder}' if holder else ''}{place}", run=run)


class ListenerReload:
    """Around the adoption of a configuration: its sockets are bound before, and served after it.

    An address that cannot be bound refuses the reload, and nothing has changed.
    """

    def __init__(self, server: HttpServer, app_context: AppContext, most: int) -> None:
        self._server, self._app_context, self._most = server, app_context, most

    @contextmanager
    def __call__(self, compiled: CompiledConfig) -> Iterator[None]:
        wanted = _list_wanted(compiled.settings, self._app_context)
        kept = [one for one in self._server.listeners if _is_kept(one, wanted)]
        missing = wanted.keys() - {listener.name for listener in kept}
        is_changed = bool(missing) or len(kept) < len(self._server.listeners)
        if is_changed and not self._server.is_started:
            raise Refused("the gateway is starting; reload again", run="ductile system reload")
        opened = self._bind({name: wanted[name] for name in wanted if name in missing}, compiled)
        try:
            yield
        except BaseException:
            _close(opened)
            raise
        if is_changed:
            self._server.replace([*kept, *opened])
            log = logger("gateway")
            log.info("listeners", **{one.name: one.address for one in self._server.listeners[1:]})

    def _bind(self, missing: Mapping[str, _Wanted], compiled: CompiledConfig) -> list[Listener]:
        opened: list[Listener] = []
        for name, wanted in missing.items():
            try:
                opened.append(_open(name, wanted, self._most))
            except Refused as error:
                _close(opened)
                raise ConfigError([self._explain(error, wanted, compiled)]) from None
        return opened

    def _explain(self, error: Refused, wanted: _Wanted, compiled: CompiledConfig) -> Problem:
        own = [one.socket for one in self._server.listeners if one.configured]
        ports = {bound.getsockname()[1] for bound in own}
        held = "; this gateway holds the port until it is stopped and started again"
        message = f"{error.message}{held if wanted.address[1] in ports else ''}"
        return Problem(message, wanted.setting, *compiled.loaded.locate(wanted.setting))


def _is_kept(listener: Listener, wanted: Mapping[str, _Wanted]) -> bool:
    if listener.configured is None:
        return True
    found = wanted.get(listener.name)
    return found is not None and found.address == listener.configured
