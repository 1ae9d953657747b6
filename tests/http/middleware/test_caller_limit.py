"""Requests that stay open: one token cannot take all places, and operators always find one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ductile.engine.ingress.authenticator import LOCAL, Principal
from ductile.errors import DuctileError
from ductile.http.middleware import context
from ductile.http.middleware.caller_limit import CallerLimit, TooManyOpenRequests
from ductile.http.middleware.context import TooManyWaits
from tests.http.client import Client
from tests.http.harness import READER, ApiHarness, allow_long_waits, running_api
from tests.waiting import until

ADMIN = Principal("admin", "admin", frozenset({"*"}))


def reader(name: str) -> Principal:
    return Principal(name, name, frozenset({"jobs:ro"}))


def fill(limit: CallerLimit, *principals: Principal) -> list[int]:
    """Return how many places each principal gets, one after the other."""
    counts = []
    for principal in principals:
        before = limit.count
        with suppress(DuctileError):
            while True:
                limit.enter(principal)
        counts.append(limit.count - before)
    return counts


def test_places_are_reserved_for_administrators_and_the_local_socket() -> None:
    limit = CallerLimit(100, "waiting requests", TooManyWaits)
    readers = [reader(name) for name in "abcd"]
    assert fill(limit, *readers, ADMIN, LOCAL) == [25, 25, 25, 5, 10, 10]
    with pytest.raises(TooManyWaits):
        limit.enter(LOCAL)


def test_caller_at_its_own_limit_gets_the_reason() -> None:
    limit = CallerLimit(100, "waiting requests", TooManyWaits)
    fill(limit, reader("a"))
    with pytest.raises(TooManyOpenRequests, match="this token has too many open waiting requests"):
        limit.enter(reader("a"))
    limit.leave(reader("a"))
    limit.enter(reader("a"))


def test_every_caller_kind_has_a_place_where_there_are_few() -> None:
    limit = CallerLimit(1, "waiting requests", TooManyWaits)
    with limit.place(reader("a")):
        pass
    assert limit.count == 0


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiHarness]:
    allow_long_waits(monkeypatch)
    monkeypatch.setattr(context, "MAX_WAITS", 8)
    with running_api(working=False) as api:
        yield api


def test_waits_of_one_token_leave_places_for_others(api: ApiHarness) -> None:
    id = api.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
    statuses: list[int] = []

    def wait() -> None:
        statuses.append(api.ask("GET", f"/job/{id}?wait=3600", token=READER).status)

    waiting = [threading.Thread(target=wait) for _ in range(2)]
    for thread in waiting:
        thread.start()
    [router] = [each.app for each in api.server.listeners if each.name == "local"]
    until(lambda: router.state.app_context.waits.count == 2)  # type: ignore[attr-defined]
    refused = api.ask("GET", f"/job/{id}?wait=1", token=READER)
    assert (refused.status, refused.slug) == (429, "too_many_open_requests")
    assert api.ask("GET", f"/job/{id}", token=READER).status == 200
    assert api.ask("GET", f"/job/{id}?wait=0.01").status == 200
    assert Client(api.gateway.socket_path).get(f"/job/{id}?wait=0.01").status == 200
    assert api.ask("POST", f"/job/{id}/cancel").status == 202
    for thread in waiting:
        thread.join()
    assert statuses == [200, 200]
