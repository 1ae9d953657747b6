"""The fast path: frequent requests, served without the request machinery of Starlette.

It takes only requests that need nothing special. Every other request, and every refusal, takes
the normal route, which reports what is wrong. Heartbeats and triggers are here; the fast path of
webhooks is next to their normal route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import orjson

from ductile.core.agents import heartbeat
from ductile.core.agents.heartbeat import InvalidHeartbeat
from ductile.errors import DuctileError
from ductile.http.endpoint import Endpoint
from ductile.http.middleware.auth import AccessControl
from ductile.http.middleware.caller import identify_caller, trace_of
from ductile.http.middleware.context import AppContext
from ductile.http.middleware.loop_queue import LoopQueue
from ductile.http.requests import check_object, new_job, request_model, validate
from ductile.http.responses import describe_queued, exception_response, redact_body, render_json
from ductile.model import NewJob, SubmittedBy
from ductile.store.jobs.enqueue import Enqueued

if TYPE_CHECKING:
    from ductile.http.models.bodies import TriggerBody

POST = "POST"

Respond = Callable[[tuple[int, bytes] | None], None]
"""Takes a status and a JSON body; None sends the request to the normal route after all."""


class FastRoute:
    """Serves requests of one kind. Used in the event loop only."""

    def take(self, scope: Any, body: bytes, respond: Respond) -> bool:
        """Return whether the request is taken; `respond` is called once its row is durable."""
        raise NotImplementedError


class FastPath:
    """The fast routes of one listener."""

    def route_for(self, scope: Any) -> FastRoute | None:
        """Return the fast route of a request; None if it has to take the normal route.

        Access is decided here, from the head; the body may still follow.
        """
        raise NotImplementedError


class EndpointRoute(FastRoute):
    """One endpoint of the route table."""

    PATH = ""

    def __init__(self, app_context: AppContext, access: AccessControl, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._app_context, self._access = app_context, access
        self._services = app_context.services

    def admits(self, scope: Any) -> bool:
        """Return whether the head is plain and the caller may call; the body may still follow.

        Raises the errors of `AccessControl`.
        """
        raise NotImplementedError

    def _count(self, status: int, since: float) -> None:
        took = self._services.clock.monotonic() - since
        self._app_context.metrics.count_request(POST, self.endpoint.path, status, took)


class ApiFastPath(FastPath):
    """Heartbeats and triggers on the local socket or the API listener."""

    def __init__(
        self, app_context: AppContext, access: AccessControl, endpoints: Iterable[Endpoint]
    ) -> None:
        rows = {endpoint.path: endpoint for endpoint in endpoints if endpoint.method == POST}
        self._heartbeats = HeartbeatRoute(app_context, access, rows[HeartbeatRoute.PATH])
        self._triggers = TriggerRoute(app_context, access, rows[TriggerRoute.PATH])

    def route_for(self, scope: Any) -> FastRoute | None:
        # An encoded slash is part of a name, which only the router knows.
        is_plain = scope["method"] == POST and b"%2f" not in scope["raw_path"].lower()
        route = self._find(scope["path"]) if is_plain else None
        try:
            return route if route is not None and route.admits(scope) else None
        except DuctileError:
            return None

    def _find(self, path: str) -> EndpointRoute | None:
        if path.startswith(TriggerRoute.PREFIX):
            return self._triggers
        return self._heartbeats if path == HeartbeatRoute.PATH else None


class HeartbeatRoute(EndpointRoute):
    PATH = "/gateway/heartbeat"
    OK = b'{"status":"ok"}\n'

    def admits(self, scope: Any) -> bool:
        self._access.admit(scope, self.endpoint, {})
        return True

    def take(self, scope: Any, body: bytes, respond: Respond) -> bool:  # noqa: ARG002
        services = self._services
        started = services.clock.monotonic()
        try:
            reported = heartbeat.parse_heartbeat(orjson.loads(body), services.clock.now())
            if isinstance(reported, InvalidHeartbeat):
                return False
            services.agents.heartbeats.record_heartbeat(reported.agent_id, reported.cluster_id)
        except (DuctileError, orjson.JSONDecodeError):
            return False

        def recorded(error: BaseException | None) -> None:
            if error is not None:
                respond(None)  # Recording a heartbeat twice does no harm.
                return
            self._count(200, started)
            respond((200, self.OK))

        self._app_context.heartbeats.add(reported, recorded)
        return True


class TriggerRoute(EndpointRoute):
    PREFIX = "/plugin/"
    PATH = "/plugin/{plugin}/{command}"

    def admits(self, scope: Any) -> bool:
        plugin, command = self._names(scope)
        self._services.check(plugin, command)
        if scope["query_string"] or b"idempotency-key" in dict(scope["headers"]):
            return False
        self._access.admit(scope, self.endpoint, {"plugin": plugin, "command": command})
        principal = self._access.principal(scope)
        # The budget of a lease is counted by the normal route.
        return principal is None or not principal.is_lease

    def _names(self, scope: Any) -> tuple[str, str]:
        plugin, _, command = scope["path"][len(self.PREFIX) :].partition("/")
        return plugin, command

    def take(self, scope: Any, body: bytes, respond: Respond) -> bool:
        services = self._services
        started = services.clock.monotonic()
        plugin, command = self._names(scope)
        try:
            model = cast("type[TriggerBody]", request_model(str(self.endpoint.body)))
            given = validate(model, check_object(orjson.loads(body), body), "body")
            if given.dry_run:
                return False
            actor = identify_caller(scope, self._access).actor
            trace = trace_of(scope, self._services)
            new = new_job(plugin, command, self._submitted_by(scope), given, actor, trace)
            work = services.enqueueing(new)
            committed = partial(self._respond, scope["path"], new, started, respond)
            LoopQueue.current().submit(services.ledger, work, committed)
        except (DuctileError, orjson.JSONDecodeError):
            return False
        return True

    def _submitted_by(self, scope: Any) -> SubmittedBy:
        cli = self._access.local and (b"x-ductile-client", b"cli") in scope["headers"]
        return SubmittedBy.CLI if cli else SubmittedBy.API

    def _respond(
        self,
        path: str,
        new: NewJob,
        started: float,
        respond: Respond,
        job: Enqueued | None,
        error: BaseException | None,
    ) -> None:
        """Report the outcome of the commit.

        The normal route must not repeat the request: the job may be queued despite an error.
        """
        if error is None:
            assert job is not None
            status, body = 202, render_json(describe_queued(job, new.plugin, new.command))
            body = redact_body(body, self._services)
        else:
            response = exception_response(error, self._services, path)
            status, body = response.status_code, bytes(response.body)
        self._count(status, started)
        respond((status, body))
