"""A trigger in order takes the short way, anything else the ordinary one; nobody can tell."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from ductile.errors import LedgerFull
from ductile.http.middleware.fast_path import FastPath, TriggerRoute
from ductile.store.jobs import enqueue, read
from tests.http.client import Client
from tests.http.doors import (
    ADMIN,
    CONFIG,
    NOTHING,
    READER,
    Answer,
    House,
    opened,
    read_all,
    takings,
)
from tests.waiting import WAIT_LIMIT, until


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(working=False) as house:
        yield house


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that came by was taken."""
    return takings(monkeypatch, TriggerRoute)


def comparable(answer: Answer) -> tuple[int, Mapping[str, str], Any]:
    """All of it but the id of a new job, and what time it is."""
    document = answer.json
    if document.get("job_id"):
        document["job_id"] = len(document["job_id"])
    headers = {name.lower(): value for name, value in answer.headers.items()}
    headers["date"] = headers["date"][-4:]
    return answer.status, headers, document


def row(house: House, job_id: str) -> dict[str, Any]:
    found = house.gateway.ledger.read(lambda tx: read.describe_job(tx, job_id))
    assert found is not None
    return found


SHORT = [
    ("echo/poll", "{}", ADMIN),
    ("echo/poll", '{"payload": {"n": 1}}', ADMIN),
    ("echo/poll", '{"payload": null, "dry_run": false}', ADMIN),
    ("echo/poll", '{"payload": [1, "\\ud83d\\ude00"]}', ADMIN),
    ("echo/handle", '{"payload": {"n": 1}}', ADMIN),
    ("echo/peek", "{}", READER),
    ("ech%6f/poll", "{}", ADMIN),
    ("echo%2fpoll", "{}", ADMIN),
]
ORDINARY = [
    ("echo/poll", "", ADMIN),
    ("echo/poll", "{", ADMIN),
    ("echo/poll", "[]", ADMIN),
    ("echo/poll", '{"payload": {}} and more', ADMIN),
    ("echo/poll", '{"payload": 12345678901234567890123}', ADMIN),
    ("echo/poll", '{"payload": ' + "[" * 200 + "]" * 200 + "}", ADMIN),
    ("echo/poll", '{"dry_run": true}', ADMIN),
    ("echo/poll", '{"dry_run": 1}', ADMIN),
    ("echo/poll", '{"payloda": {}}', ADMIN),
    ("echo/poll", '{"dedupe_key": ""}', ADMIN),
    ("echo/poll", '{"dedupe_key": "k", "dedupe_ttl": "soon"}', ADMIN),
    ("echo/poll?async=true", "{}", ADMIN),
    ("echo/poll?x=%00", "{}", ADMIN),
    ("echo/nothing", "{}", ADMIN),
    ("nobody/poll", "{}", ADMIN),
    ("echo", "{}", ADMIN),
    ("echo/", "{}", ADMIN),
    ("echo/poll/", "{}", ADMIN),
    ("echo/poll/more", "{}", ADMIN),
    ("echo/poll%00", "{}", ADMIN),
    ("/poll", "{}", ADMIN),
    ("echo/poll", "{}", READER),
    ("echo/peek", "{}", NOTHING),
    ("echo/poll", "{}", "wrong"),
    ("echo/poll", "{}", None),
    ("echo/poll", '{"payload": "' + "x" * 20_000 + '"}', ADMIN),
    ("echo/poll", "x" * 1_100_000, ADMIN),
]


@pytest.mark.parametrize(("path", "body", "token"), SHORT + ORDINARY)
def test_both_ways_answer_alike(
    house: House, monkeypatch: pytest.MonkeyPatch, path: str, body: str, token: str | None
) -> None:
    short = house.ask("POST", f"/plugin/{path}", body, token=token)
    monkeypatch.setattr(FastPath, "route_for", lambda *_: None)
    ordinary = house.ask("POST", f"/plugin/{path}", body, token=token)
    assert comparable(short) == comparable(ordinary)


@pytest.mark.parametrize(("path", "body", "token"), SHORT)
def test_one_in_order_is_taken(
    house: House, taken: list[bool], path: str, body: str, token: str
) -> None:
    answer = house.ask("POST", f"/plugin/{path}", body, token=token)
    assert (answer.status, taken) == (202, [True])


@pytest.mark.parametrize(("path", "body", "token"), ORDINARY)
def test_one_that_is_not_is_left_to_the_ordinary_way(
    house: House, taken: list[bool], path: str, body: str, token: str | None
) -> None:
    house.ask("POST", f"/plugin/{path}", body, token=token)
    assert True not in taken


def test_what_is_asked_for_is_what_is_queued(house: House, taken: list[bool]) -> None:
    body = {"payload": {"n": [1, None]}, "dedupe_key": "what", "dedupe_ttl": "1h"}
    first = house.ask("POST", "/plugin/echo/poll", body)
    again = house.ask("POST", "/plugin/echo/poll", body)
    assert taken == [True, True]
    assert (first.json["deduplicated"], again.json["deduplicated"]) == (False, True)
    assert again.json["job_id"] == first.json["job_id"]
    found = row(house, first.json["job_id"])
    assert (found["payload"], found["submitted_by"]) == ({"n": [1, None]}, "api")


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Idempotency-Key": "k1"}],
)
def test_a_header_that_needs_care_gets_it(
    house: House, taken: list[bool], headers: dict[str, str]
) -> None:
    answers = [house.ask("POST", "/plugin/echo/poll", "{}", headers=headers) for _ in range(2)]
    assert taken == []
    assert answers[0].raw == answers[1].raw


def test_the_command_line_is_known_on_the_local_socket_alone(
    house: House, taken: list[bool]
) -> None:
    client = Client(house.gateway.socket_path)
    local = client.post("/plugin/echo/poll", {}, **{"X-Ductile-Client": "cli"}).json["job_id"]
    plain = client.post("/plugin/echo/poll", {}).json["job_id"]
    remote = house.ask("POST", "/plugin/echo/poll", "{}", headers={"X-Ductile-Client": "cli"})
    assert taken == [True, True, True]
    made = [row(house, id)["submitted_by"] for id in (local, plain, remote.json["job_id"])]
    assert made == ["cli", "api", "api"]


def test_a_ledger_that_takes_nothing_is_told_and_asked_once(
    house: House, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def full(*_: object, **__: object) -> None:
        asked.append(1)
        raise LedgerFull("no space")

    monkeypatch.setattr(enqueue, "enqueue_job", full)
    answer = house.ask("POST", "/plugin/echo/poll", "{}")
    assert (answer.status, answer.slug) == (507, "ledger_full")
    assert (taken, asked) == ([True], [1])


def test_a_bug_is_no_secret_to_us_and_one_to_the_caller(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(enqueue, "enqueue_job", broken)
    answer = house.ask("POST", "/plugin/echo/poll", "{}")
    assert (answer.status, answer.json["code"]) == (500, "internal")
    assert b"inside" not in answer.raw


def test_a_bug_of_the_short_way_is_not_the_callers_fault(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(TriggerRoute, "_submitted_by", broken)
    assert house.ask("POST", "/plugin/echo/poll", "{}").status == 202
    assert "fast path raised an error; using the normal route" in capsys.readouterr().out


def test_many_side_by_side_are_each_a_job(house: House, taken: list[bool]) -> None:
    def post(number: int) -> Any:
        return house.ask("POST", "/plugin/echo/poll", {"payload": number}).json["job_id"]

    with ThreadPoolExecutor(16) as threads:
        ids = list(threads.map(post, range(200)))
    assert taken == [True] * 200
    assert [row(house, id)["payload"] for id in ids] == list(range(200))


def test_who_may_not_is_told_before_the_body_comes(house: House) -> None:
    head = "POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with house.connect() as line:
        line.sendall(head.encode())
        assert line.recv(100).startswith(b"HTTP/1.1 401 ")


def test_it_counts_like_any_other(house: House) -> None:
    def count() -> int:
        text = house.ask("GET", "/metrics").raw.decode()
        start = (
            'ductile_http_requests_total{method="POST",route="/plugin/{plugin}/{command}",'
            'status="202"}'
        )
        return next((int(x.split()[-1]) for x in text.splitlines() if x.startswith(start)), 0)

    before = count()
    house.ask("POST", "/plugin/echo/poll", "{}")
    assert count() == before + 1


def test_nothing_secret_is_in_the_answer() -> None:
    """A command may bear a name that somebody else's secret has."""
    manifest = {"plugins/echo/manifest.yaml": MANIFEST_WITH_SECRET}
    config = CONFIG + "plugins:\n  echo: {config: {password: secret_word_0123}}\n"
    with opened(config, working=False, files=manifest) as own:
        answer = own.ask("POST", "/plugin/echo/secret_word_0123", "{}")
    assert answer.status == 202
    assert b"secret_word_0123" not in answer.raw
    assert int(answer.headers["content-length"]) == len(answer.raw)


MANIFEST_WITH_SECRET = """\
name: echo
version: '1'
protocol: 1
entrypoint: run.sh
commands:
  secret_word_0123: {type: write}
"""


@contextmanager
def standing_still(house: House) -> Iterator[None]:
    """The ledger commits nothing meanwhile."""
    go_on, entered = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        entered.set()
        assert go_on.wait(WAIT_LIMIT)

    house.gateway.ledger.submit(hold, lambda *_: None)
    assert entered.wait(WAIT_LIMIT)
    try:
        yield
    finally:
        go_on.set()


def raw(body: str) -> bytes:
    head = (
        f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    return head.encode()


def test_who_leaves_before_the_answer_leaves_a_job(house: House) -> None:
    body = json.dumps({"payload": "left", "dedupe_key": "left", "dedupe_ttl": "1h"})
    with standing_still(house), house.connect() as line:
        line.sendall(raw(body))
    after = house.ask("POST", "/plugin/echo/poll", body)
    assert after.json["deduplicated"] is True


@pytest.mark.parametrize("missing", [0, 1])
def test_who_still_waits_when_the_server_ends_is_told(missing: int) -> None:
    request = raw("{}")
    with opened(working=False) as own, own.connect() as line, standing_still(own):
        line.sendall(request[: len(request) - missing])
        guests = own.server._server.server_state.connections
        until(lambda: any(guest._held or guest._taken for guest in list(guests)))
        own.server.stop()
        said = read_all(line)
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"stopping"' in said
