"""The request that comes thousands of times, without ceremony: a heartbeat that is in order.

One that is not, in whatever way, goes the ordinary way: there every refusal has its words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from ductile.core import heartbeat, scopes
from ductile.core.heartbeat import Refusal
from ductile.errors import DuctileError
from ductile.http import knock
from ductile.http.lobby import Lobby

METHOD, PATH = "POST", "/gateway/heartbeat"
TOKEN_SCOPE = "agents:rw"
OK = b'{"status":"ok"}\n'

Answered = Callable[[bytes | None], None]
"""Takes the body of a 200; None has the request go the ordinary way after all."""


class Express:
    """Lives in the loop. Does what the guard and the route do, as long as nothing is amiss."""

    def __init__(self, lobby: Lobby) -> None:
        self._lobby = lobby

    def is_for(self, scope: Any) -> bool:
        return bool(scope["path"] == PATH and scope["method"] == METHOD)

    def take(self, scope: Any, body: bytes, answered: Answered) -> bool:
        """Whether the request is taken; `answered` is called when its row is durable."""
        lobby = self._lobby
        gateway = lobby.gateway
        before = gateway.clock.monotonic()
        try:
            if not self._may_enter(scope):
                return False
            beat = heartbeat.read(orjson.loads(body), gateway.clock.now())
            if isinstance(beat, Refusal):
                return False
            gateway.agents.heartbeats.record_heartbeat(beat.agent_id, beat.cluster_id)
        except (DuctileError, orjson.JSONDecodeError):
            return False

        def done(error: BaseException | None) -> None:
            if error is None:
                lobby.metrics.answered(METHOD, PATH, 200, gateway.clock.monotonic() - before)
            answered(OK if error is None else None)

        lobby.beats.add(beat, done)
        return True

    def _may_enter(self, scope: Any) -> bool:
        settings, told = self._lobby.gateway.blueprint.settings, knock.read(scope["headers"])
        knock.check_host(told, scope, settings.api.address[0], settings.api.allowed_hosts)
        if told.origin is not None:
            return False
        if settings.gateway.open:
            return True
        keeper = self._lobby.keeper
        if told.token is None or keeper.is_stale(told.token):
            return False
        principal = keeper.who(told.token)
        return principal is not None and scopes.allows(principal.scopes, TOKEN_SCOPE)
