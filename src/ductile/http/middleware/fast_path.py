"""The requests that come thousands of times, without ceremony: heartbeats and triggers in order.

One that is not, in whatever way, goes the ordinary way: there every refusal has its words.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import orjson

from ductile.core.agents import heartbeat
from ductile.core.agents.heartbeat import Refusal
from ductile.core.values import scopes
from ductile.engine.ingress.auth import Principal
from ductile.errors import DuctileError
from ductile.http.middleware import identity
from ductile.http.middleware.auth import may_run
from ductile.http.middleware.context import AppContext
from ductile.http.middleware.loop_queue import LoopQueue
from ductile.http.requests import as_object, flag_of
from ductile.http.responses import raised, rendered, without_secrets
from ductile.http.routes import jobs
from ductile.model import NewJob, SubmittedBy
from ductile.store.jobs.enqueue import Enqueued

POST = "POST"

Answered = Callable[[tuple[int, bytes] | None], None]
"""Takes a status and a body of JSON; None has the request go the ordinary way after all."""


class FastRoute(Protocol):
    def admits(self, scope: Any) -> bool:
        """Whether its head is in order, and who sent it may. Raises what `knock` raises."""

    def take(self, scope: Any, body: bytes, answered: Answered) -> bool:
        """Whether the request is taken; `answered` is called when its row is durable."""


class FastPath:
    """Lives in the loop. Does what the guard and the route do, as long as nothing is amiss."""

    def __init__(self, app_context: AppContext, *, local: bool) -> None:
        self._heartbeats = _Heartbeats(app_context, local=local)
        self._triggers = _Triggers(app_context, local=local)

    def way_for(self, scope: Any) -> FastRoute | None:
        """The way of a request whose body may still be on its way."""
        way = self._named(scope["path"]) if scope["method"] == POST else None
        try:
            return way if way is not None and way.admits(scope) else None
        except DuctileError:
            return None

    def _named(self, path: str) -> FastRoute | None:
        if path.startswith(_Triggers.BELOW):
            return self._triggers
        return self._heartbeats if path == _Heartbeats.PATH else None


class _Way:
    PATH = ""
    """Of the route, as it is counted."""

    def __init__(self, app_context: AppContext, *, local: bool) -> None:
        self._app_context, self._gateway, self._local = app_context, app_context.gateway, local

    def _may_enter(
        self, scope: Any, may: Callable[[Principal], bool], *, to_all: bool = False
    ) -> bool:
        """False where that takes a closer look."""
        if self._local:
            return True
        api, told = self._gateway.compiled.settings.api, identity.read(scope["headers"])
        identity.check_host(told, scope, api.address[0], api.allowed_hosts)
        if told.origin is not None:
            return False
        if to_all:
            return True
        authenticator = self._app_context.authenticator
        if told.token is None or authenticator.is_stale(told.token):
            return False
        principal = authenticator.who(told.token)
        return principal is not None and may(principal)

    def _count(self, status: int, since: float) -> None:
        took = self._gateway.clock.monotonic() - since
        self._app_context.metrics.answered(POST, self.PATH, status, took)


class _Heartbeats(_Way):
    PATH = "/gateway/heartbeat"
    TOKEN_SCOPE = "agents:rw"
    OK = b'{"status":"ok"}\n'

    def admits(self, scope: Any) -> bool:
        to_all = self._gateway.compiled.settings.gateway.open
        return self._may_enter(scope, self._may, to_all=to_all)

    def _may(self, principal: Principal) -> bool:
        return scopes.allows(principal.scopes, self.TOKEN_SCOPE)

    def take(self, scope: Any, body: bytes, answered: Answered) -> bool:  # noqa: ARG002
        gateway = self._gateway
        before = gateway.clock.monotonic()
        try:
            beat = heartbeat.read(orjson.loads(body), gateway.clock.now())
            if isinstance(beat, Refusal):
                return False
            gateway.agents.heartbeats.record_heartbeat(beat.agent_id, beat.cluster_id)
        except (DuctileError, orjson.JSONDecodeError):
            return False

        def done(error: BaseException | None) -> None:
            if error is not None:
                answered(None)  # Twice does no harm.
                return
            self._count(200, before)
            answered((200, self.OK))

        self._app_context.beats.add(beat, done)
        return True


class _Triggers(_Way):
    BELOW = "/plugin/"
    PATH = "/plugin/{plugin}/{command}"

    def admits(self, scope: Any) -> bool:
        plugin, command = self._named(scope)
        self._gateway.check(plugin, command)
        return not self._needs_care(scope) and self._may_enter(
            scope, lambda principal: may_run(self._gateway, principal, plugin, command)
        )

    def _named(self, scope: Any) -> tuple[str, str]:
        plugin, _, command = scope["path"][len(self.BELOW) :].partition("/")
        return plugin, command

    def _needs_care(self, scope: Any) -> bool:
        """Whether the request asks for more than a job."""
        return bool(scope["query_string"]) or b"idempotency-key" in dict(scope["headers"])

    def take(self, scope: Any, body: bytes, answered: Answered) -> bool:
        gateway = self._gateway
        before = gateway.clock.monotonic()
        plugin, command = self._named(scope)
        try:
            asked = as_object(orjson.loads(body), body)
            if flag_of(asked, "dry_run"):
                return False
            new = jobs.wanted(plugin, command, self._producer(scope), asked)
            work = gateway.enqueueing(new)
            made = partial(self._made, scope["path"], new, before, answered)
            gateway.ledger.submit(work, partial(LoopQueue.here().put, made))
        except (DuctileError, orjson.JSONDecodeError):
            return False
        return True

    def _producer(self, scope: Any) -> SubmittedBy:
        cli = self._local and (b"x-ductile-client", b"cli") in scope["headers"]
        return SubmittedBy.CLI if cli else SubmittedBy.API

    def _made(
        self,
        path: str,
        new: NewJob,
        before: float,
        answered: Answered,
        job: Enqueued | None,
        error: BaseException | None,
    ) -> None:
        """Never the ordinary way from here: whether there is a job by now may not be known."""
        if error is None:
            assert job is not None
            status, body = 202, rendered(jobs.triggered(job, new.plugin, new.command))
            body = without_secrets(body, self._gateway)
        else:
            response = raised(error, self._gateway, path)
            status, body = response.status_code, bytes(response.body)
        self._count(status, before)
        answered((status, body))
