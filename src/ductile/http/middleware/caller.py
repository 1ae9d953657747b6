"""Who sends a request and from where, as jobs and the audit log name it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.trace import TraceContext, parse_traceparent
from ductile.engine.ingress.authenticator import LOCAL, Principal
from ductile.engine.services import Services
from ductile.store.engines.api import Tx, Work
from ductile.store.jobs import enqueue

if TYPE_CHECKING:
    from starlette.requests import Request

    from ductile.http.middleware.auth import AccessControl

T = TypeVar("T")
PEER_UID = "ductile.peer_uid"
"""ASGI scope key: the user whose process is at the other end of the local socket."""
LOCAL_SOCKET = "local socket"
COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Caller:
    actor: str
    """`token:NAME`, `user:NAME` on this machine, `session:local` or `anonymous`."""
    source: str
    """The address, the local socket, or a command that works without a gateway."""


def identify_caller(scope: Any, access: AccessControl) -> Caller:
    if access.local:
        uid = scope.get(PEER_UID)
        actor = f"user:{user_name(os.getuid() if uid is None else uid)}"
        return Caller(actor, COMMAND_LINE if uid is None else LOCAL_SOCKET)
    return Caller(actor_of(access.principal(scope)), address_of(scope))


def actor_of(principal: Principal | None) -> str:
    """Return the name of a caller of the API listener."""
    if principal is None:
        return "anonymous"
    # A session in a browser may be opened with a code from the local socket.
    return "session:local" if principal.id == LOCAL.id else f"token:{principal.name}"


def caller_of(request: Request) -> Caller:
    return identify_caller(request.scope, request.app.state.access)


def with_submitter(
    request: Request, work: Work[T], job_ids: Callable[[T], Iterable[str]]
) -> Work[T]:
    """Return the transaction, which also names the caller in the jobs that it creates."""
    actor = caller_of(request).actor

    def run(tx: Tx) -> T:
        result = work(tx)
        enqueue.set_submitter(tx, job_ids(result), actor)
        return result

    return run


def trace_of(scope: Any, services: Services) -> TraceContext | None:
    """Return the trace that a request belongs to by its header, if tracing is on."""
    if services.compiled.tracing is None:
        return None
    found = [value for name, value in scope["headers"] if name == b"traceparent"]
    return parse_traceparent(found[0].decode("latin-1")) if len(found) == 1 else None


def address_of(scope: Any) -> str:
    """Return the client's address without its port."""
    client = scope.get("client")
    return str(client[0]) if client else LOCAL_SOCKET


@lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """Return the user's name; the number of a user that the system does not know."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
