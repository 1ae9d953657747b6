"""Plain webhook requests take the fast path, other ones the normal route, with equal responses.

The tests of the webhook routes run both ways as well; see the fixture `webhook_route`.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ductile.core.delivery.signatures import VerifiedWebhook
from ductile.engine.ingress.webhook import AcceptWebhook
from ductile.errors import LedgerFull
from ductile.http.routes import webhooks
from ductile.http.routes.webhooks import WebhookFastPath
from ductile.store.jobs import read
from tests.http.harness import CONFIG, Answer, ApiHarness, read_all, record_taken, running_api
from tests.waiting import WAIT_LIMIT, until

SECRET = "hook-secret-0123456789"
HOOKS = f"""\
webhooks:
  listen: 127.0.0.1:0
  endpoints:
    - {{path: /hook/small, plugin: echo, secret: {SECRET}, max_body_size: 100}}
    - {{path: /hook/github, plugin: echo, secret: {SECRET}, provider: github}}
    - {{path: /hook/large, plugin: echo, secret: {SECRET}, provider: github}}
"""
Headers = Mapping[str, str]


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + HOOKS, working=False) as api:
        yield api


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the fast path took each request."""
    return record_taken(monkeypatch, WebhookFastPath)


def signature(body: bytes) -> dict[str, str]:
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}"}


def post(api: ApiHarness, path: str, body: bytes, headers: Headers) -> Answer:
    return api.ask("POST", path, body, token=None, headers=headers, listener="webhooks")


def comparable(answer: Answer) -> tuple[int, Headers, Any]:
    """The response without the id of the job and the time."""
    document = answer.json
    if document.get("job_id"):
        document["job_id"] = len(document["job_id"])
    headers = {name.lower(): value for name, value in answer.headers.items()}
    headers["date"] = headers["date"][-4:]
    return answer.status, headers, document


def raw(body: bytes, *more: str) -> bytes:
    signed = [f"{name}: {value}" for name, value in signature(body).items()]
    lines = ["POST /hook/small HTTP/1.1", "Host: localhost", *signed, *more, "", ""]
    return "\r\n".join(lines).encode()


BODY = b'{"n": 1}'
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PLAIN: list[tuple[str, bytes, Headers]] = [
    ("/hook/github?x=1", BODY, {"X-GitHub-Event": "push"}),
    ("/hook/github", b"a=1&b=2", FORM),
    ("/hook/github", b"no JSON \xff\x00", {}),
    ("/hook/github", b"[" * 200 + b"]" * 200, {}),
    ("/hook/github", b"12345678901234567890123", {}),
]
OTHER: list[tuple[str, bytes, Headers]] = [
    ("/hook/small", b"x" * 101, {}),
    ("/hook/large", b"x" * 20_000, {}),
    ("/hook/small", BODY, {"X-Hub-Signature-256": "00"}),
    ("/hook/small", BODY, {"Host": "evil.example"}),
    ("/hook/small", BODY, {"Origin": "https://evil.example"}),
    ("/hook/nowhere", BODY, {}),
    ("/healthz", BODY, {}),
]


@pytest.mark.parametrize(("path", "body", "headers"), PLAIN + OTHER)
def test_fast_path_and_normal_route_return_the_same_response(
    api: ApiHarness,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: bytes,
    headers: Headers,
    request: pytest.FixtureRequest,
) -> None:
    sent, name = {**signature(body), **headers}, request.node.name
    fast = post(api, path, body, {**sent, "X-GitHub-Delivery": f"{name}-fast"})
    monkeypatch.setattr(WebhookFastPath, "route_for", lambda *_: None)
    normal = post(api, path, body, {**sent, "X-GitHub-Delivery": f"{name}-normal"})
    assert comparable(fast) == comparable(normal)


@pytest.mark.parametrize(("path", "body", "headers"), PLAIN)
def test_plain_request_is_taken(
    api: ApiHarness, taken: list[bool], path: str, body: bytes, headers: Headers
) -> None:
    answer = post(api, path, body, {**signature(body), **headers})
    assert (answer.status, taken) == (202, [True])


@pytest.mark.parametrize(("path", "body", "headers"), OTHER)
def test_other_request_takes_the_normal_route(
    api: ApiHarness, taken: list[bool], path: str, body: bytes, headers: Headers
) -> None:
    post(api, path, body, {**signature(body), **headers})
    assert True not in taken


def test_body_of_the_largest_size_is_taken(api: ApiHarness, taken: list[bool]) -> None:
    body = b"x" * 100
    answers = [post(api, "/hook/small", body, signature(body)).json for _ in range(2)]
    assert taken == [True, True]
    assert answers[1] == {**answers[0], "duplicate": True}


def test_body_of_unknown_size_takes_the_normal_route(api: ApiHarness, taken: list[bool]) -> None:
    body = b'{"chunked": 1}'
    with api.connect("webhooks") as line:
        chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        line.sendall(raw(body, "Transfer-Encoding: chunked", "Connection: close") + chunk)
        assert read_all(line).startswith(b"HTTP/1.1 202 ")
    assert taken == []


def test_too_large_body_is_refused_before_it_arrives(api: ApiHarness) -> None:
    with api.connect("webhooks") as line:
        line.sendall(raw(b"", "Content-Length: 101"))
        assert line.recv(100).startswith(b"HTTP/1.1 413 ")


def test_response_follows_the_commit(api: ApiHarness) -> None:
    """While the ledger cannot commit, a sender gets no answer."""
    resume, entered = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        entered.set()
        assert resume.wait(WAIT_LIMIT)

    api.gateway.ledger.submit(hold, lambda *_: None)
    assert entered.wait(WAIT_LIMIT)
    body = b'{"held": 1}'
    connections = api.server._server.server_state.connections
    with api.connect("webhooks") as line, ThreadPoolExecutor(1) as threads:
        line.sendall(raw(body, f"Content-Length: {len(body)}", "Connection: close") + body)
        until(lambda: any(connection._taken for connection in list(connections)))
        answer = threads.submit(read_all, line)
        assert not answer.done()
        resume.set()
        assert answer.result(WAIT_LIMIT).startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(LedgerFull("no space"), 507, "ledger_full"), (ZeroDivisionError("inside"), 500, "internal")],
)
def test_failed_commit_is_reported_without_another_attempt(
    api: ApiHarness,
    taken: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    code: str,
) -> None:
    asked = []

    def fail(*_: object) -> None:
        asked.append(1)
        raise error

    monkeypatch.setattr(AcceptWebhook, "_accept", fail)
    answer = post(api, "/hook/small", BODY, signature(BODY))
    assert (answer.status, answer.slug, taken, asked) == (status, code, [True], [1])
    assert b"inside" not in answer.raw


def test_equal_deliveries_of_one_batch_create_one_job(api: ApiHarness) -> None:
    compiled = api.gateway.compiled
    endpoint = next(e for e in compiled.settings.webhooks.endpoints if e.path == "/hook/github")

    def accept(delivery_id: str) -> AcceptWebhook:
        signed = VerifiedWebhook(delivery_id, None, "00")
        return AcceptWebhook(api.gateway, endpoint, signed, {"n": 1})

    works = [accept("batch-1"), accept("batch-2"), accept("batch-1")]
    taken = api.gateway.ledger.write(lambda tx: AcceptWebhook.run_together(tx, works))
    assert [one.duplicate for one in taken] == [False, False, True]
    assert taken[2].job_id == taken[0].job_id != taken[1].job_id
    again = api.gateway.ledger.write(accept("batch-2"))
    assert (again.duplicate, again.job_id) == (True, taken[1].job_id)


def test_concurrent_requests_create_one_job_each(api: ApiHarness, taken: list[bool]) -> None:
    def send(number: int) -> Any:
        body = b'{"number": %d}' % number
        return post(api, "/hook/small", body, signature(body)).json["job_id"]

    with ThreadPoolExecutor(16) as threads:
        ids = list(threads.map(send, range(100)))
    assert taken == [True] * 100
    assert [payload_of(api, id) for id in ids] == [{"number": n} for n in range(100)]


def payload_of(api: ApiHarness, job_id: str) -> Any:
    found = api.gateway.ledger.read(lambda tx: read.describe_job(tx, job_id))
    assert found is not None
    return found["payload"]["payload"]


def test_accepted_and_repeated_requests_are_counted(api: ApiHarness, taken: list[bool]) -> None:
    def count(outcome: str) -> int:
        start = f'ductile_webhook_requests_total{{endpoint="github",outcome="{outcome}"}}'
        lines = api.ask("GET", "/metrics").raw.decode().splitlines()
        return next((int(line.split()[-1]) for line in lines if line.startswith(start)), 0)

    before = [count(outcome) for outcome in ("accepted", "duplicate")]
    sent = {**signature(BODY), "X-GitHub-Delivery": "counted"}
    answers = [post(api, "/hook/github", BODY, sent).json for _ in range(2)]
    assert taken == [True, True]
    assert answers[1] == {**answers[0], "duplicate": True}
    assert [count(outcome) for outcome in ("accepted", "duplicate")] == [n + 1 for n in before]


def test_endpoint_of_a_reload_between_head_and_body_is_used() -> None:
    """A request whose head arrived before a reload is judged by the endpoint that is there now."""
    with running_api(CONFIG + HOOKS) as own, own.connect("webhooks") as line:
        line.sendall(raw(BODY, f"Content-Length: {len(BODY)}", "Connection: close"))
        until(lambda: any(c._held for c in list(own.server._server.server_state.connections)))
        own.write("config.yaml", (CONFIG + HOOKS).replace(SECRET, "another-secret-0123456789"))
        assert own.ask("POST", "/system/reload").status == 200
        line.sendall(BODY)
        assert read_all(line).startswith(b"HTTP/1.1 403 ")


def test_bug_of_the_fast_path_is_logged_and_the_normal_route_answers(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> Callable[..., None]:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(webhooks, "partial", broken)
    body = b'{"bug": 1}'
    assert post(api, "/hook/small", body, signature(body)).status == 202
    assert "fast path raised an error; using the normal route" in capsys.readouterr().out
