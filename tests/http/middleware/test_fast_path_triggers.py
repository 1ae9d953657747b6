"""Plain triggers take the fast path, other ones the normal route, with equal responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from ductile.errors import LedgerFull
from ductile.http.middleware.fast_path import ApiFastPath, TriggerRoute
from ductile.store.jobs import enqueue, read
from tests.http.client import Client
from tests.http.harness import (
    ADMIN,
    CONFIG,
    NOTHING,
    READER,
    Answer,
    ApiHarness,
    read_all,
    record_taken,
    running_api,
)
from tests.waiting import WAIT_LIMIT, until


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(working=False) as api:
        yield api


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the fast path took each request."""
    return record_taken(monkeypatch, TriggerRoute)


def comparable(answer: Answer) -> tuple[int, Mapping[str, str], Any]:
    """The response without the id of a new job and the time."""
    document = answer.json
    if document.get("job_id"):
        document["job_id"] = len(document["job_id"])
    headers = {name.lower(): value for name, value in answer.headers.items()}
    headers["date"] = headers["date"][-4:]
    return answer.status, headers, document


def row(api: ApiHarness, job_id: str) -> dict[str, Any]:
    found = api.gateway.ledger.read(lambda tx: read.describe_job(tx, job_id))
    assert found is not None
    return found


PLAIN = [
    ("echo/poll", "{}", ADMIN),
    ("echo/poll", '{"payload": {"n": 1}}', ADMIN),
    ("echo/poll", '{"payload": null, "dry_run": false}', ADMIN),
    ("echo/poll", '{"payload": [1, "\\ud83d\\ude00"]}', ADMIN),
    ("echo/handle", '{"payload": {"n": 1}}', ADMIN),
    ("echo/peek", "{}", READER),
    ("ech%6f/poll", "{}", ADMIN),
]
OTHER = [
    ("echo%2fpoll", "{}", ADMIN),
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


@pytest.mark.parametrize(("path", "body", "token"), PLAIN + OTHER)
def test_fast_path_and_normal_route_return_the_same_response(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, path: str, body: str, token: str | None
) -> None:
    short = api.ask("POST", f"/plugin/{path}", body, token=token)
    monkeypatch.setattr(ApiFastPath, "route_for", lambda *_: None)
    ordinary = api.ask("POST", f"/plugin/{path}", body, token=token)
    assert comparable(short) == comparable(ordinary)


@pytest.mark.parametrize(("path", "body", "token"), PLAIN)
def test_plain_trigger_is_taken(
    api: ApiHarness, taken: list[bool], path: str, body: str, token: str
) -> None:
    answer = api.ask("POST", f"/plugin/{path}", body, token=token)
    assert (answer.status, taken) == (202, [True])


@pytest.mark.parametrize(("path", "body", "token"), OTHER)
def test_other_trigger_takes_the_normal_route(
    api: ApiHarness, taken: list[bool], path: str, body: str, token: str | None
) -> None:
    api.ask("POST", f"/plugin/{path}", body, token=token)
    assert True not in taken


def test_queued_job_has_the_payload_and_dedupe_key(api: ApiHarness, taken: list[bool]) -> None:
    body = {"payload": {"n": [1, None]}, "dedupe_key": "what", "dedupe_ttl": "1h"}
    first = api.ask("POST", "/plugin/echo/poll", body)
    again = api.ask("POST", "/plugin/echo/poll", body)
    assert taken == [True, True]
    assert (first.json["deduplicated"], again.json["deduplicated"]) == (False, True)
    assert again.json["job_id"] == first.json["job_id"]
    found = row(api, first.json["job_id"])
    assert (found["payload"], found["submitted_by"]) == ({"n": [1, None]}, "api")


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Idempotency-Key": "k1"}],
)
def test_special_header_takes_the_normal_route(
    api: ApiHarness, taken: list[bool], headers: dict[str, str]
) -> None:
    answers = [api.ask("POST", "/plugin/echo/poll", "{}", headers=headers) for _ in range(2)]
    assert taken == []
    assert answers[0].raw == answers[1].raw


def test_client_header_counts_on_the_local_socket_only(api: ApiHarness, taken: list[bool]) -> None:
    client = Client(api.gateway.socket_path)
    local = client.post("/plugin/echo/poll", {}, **{"X-Ductile-Client": "cli"}).json["job_id"]
    plain = client.post("/plugin/echo/poll", {}).json["job_id"]
    remote = api.ask("POST", "/plugin/echo/poll", "{}", headers={"X-Ductile-Client": "cli"})
    assert taken == [True, True, True]
    made = [row(api, id)["submitted_by"] for id in (local, plain, remote.json["job_id"])]
    assert made == ["cli", "api", "api"]


def test_full_ledger_returns_507_without_another_attempt(
    api: ApiHarness, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def full(*_: object, **__: object) -> None:
        asked.append(1)
        raise LedgerFull("no space")

    monkeypatch.setattr(enqueue, "enqueue_job", full)
    answer = api.ask("POST", "/plugin/echo/poll", "{}")
    assert (answer.status, answer.slug) == (507, "ledger_full")
    assert (taken, asked) == ([True], [1])


def test_bug_returns_500_without_details(api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(enqueue, "enqueue_job", broken)
    answer = api.ask("POST", "/plugin/echo/poll", "{}")
    assert (answer.status, answer.json["code"]) == (500, "internal")
    assert b"inside" not in answer.raw


def test_bug_of_the_fast_path_is_logged_and_the_normal_route_answers(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(TriggerRoute, "_submitted_by", broken)
    assert api.ask("POST", "/plugin/echo/poll", "{}").status == 202
    assert "fast path raised an error; using the normal route" in capsys.readouterr().out


def test_concurrent_triggers_queue_one_job_each(api: ApiHarness, taken: list[bool]) -> None:
    def post(number: int) -> Any:
        return api.ask("POST", "/plugin/echo/poll", {"payload": number}).json["job_id"]

    with ThreadPoolExecutor(16) as threads:
        ids = list(threads.map(post, range(200)))
    assert taken == [True] * 200
    assert [row(api, id)["payload"] for id in ids] == list(range(200))


def test_unauthorized_trigger_is_refused_before_its_body_arrives(api: ApiHarness) -> None:
    head = "POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with api.connect() as line:
        line.sendall(head.encode())
        assert line.recv(100).startswith(b"HTTP/1.1 401 ")


def test_fast_path_requests_are_counted(api: ApiHarness) -> None:
    def count() -> int:
        text = api.ask("GET", "/metrics").raw.decode()
        start = (
            'ductile_http_requests_total{method="POST",route="/plugin/{plugin}/{command}",'
            'status="202"}'
        )
        return next((int(x.split()[-1]) for x in text.splitlines() if x.startswith(start)), 0)

    before = count()
    api.ask("POST", "/plugin/echo/poll", "{}")
    assert count() == before + 1


def test_response_is_redacted() -> None:
    """A command may have the same name as a secret of the configuration."""
    manifest = {"plugins/echo/manifest.yaml": MANIFEST_WITH_SECRET}
    config = CONFIG + "plugins:\n  echo: {config: {password: secret_word_0123}}\n"
    with running_api(config, working=False, files=manifest) as own:
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
def blocked_ledger(api: ApiHarness) -> Iterator[None]:
    """Keep the ledger from committing."""
    resume, entered = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        entered.set()
        assert resume.wait(WAIT_LIMIT)

    api.gateway.ledger.submit(hold, lambda *_: None)
    assert entered.wait(WAIT_LIMIT)
    try:
        yield
    finally:
        resume.set()


def raw(body: str) -> bytes:
    head = (
        f"POST /plugin/echo/poll HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    return head.encode()


def test_job_is_queued_although_the_client_disconnects(api: ApiHarness) -> None:
    body = json.dumps({"payload": "left", "dedupe_key": "left", "dedupe_ttl": "1h"})
    with blocked_ledger(api), api.connect() as line:
        line.sendall(raw(body))
    after = api.ask("POST", "/plugin/echo/poll", body)
    assert after.json["deduplicated"] is True


@pytest.mark.parametrize("missing", [0, 1])
def test_open_request_gets_503_when_the_server_stops(missing: int) -> None:
    request = raw("{}")
    with running_api(working=False) as own, own.connect() as line, blocked_ledger(own):
        line.sendall(request[: len(request) - missing])
        connections = own.server._server.server_state.connections
        until(lambda: any(each._held or each._taken for each in list(connections)))
        own.server.stop()
        said = read_all(line)
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"stopping"' in said
