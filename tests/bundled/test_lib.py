"""The shared modules of the bundled plugins: protocol, HTTP and tokens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest

from tests.bundled.bundled_site import PLUGINS, interpreter_path
from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest
from tests.waiting import WAIT_LIMIT

sys.path.append(str(PLUGINS / "lib"))
import http_api
import oauth2
from protocol import ConfigError, Failure, Request, Response

SECRET = "canary-token"
PREAMBLE = (
    f"import sys\nsys.path.insert(0, {str(PLUGINS / 'lib')!r})\n"
    "from protocol import ConfigError, Failure, Response, serve\n"
)


class Echo(FakeServer):
    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        return FakeReply({"path": request.path, "form": request.form, "query": dict(request.query)})


@pytest.fixture
def echo() -> Iterator[Echo]:
    before = signal.getsignal(signal.SIGALRM)
    with Echo() as fake:
        yield fake
    signal.signal(signal.SIGALRM, before)


def site(echo: Echo, seconds: float = 30.0) -> http_api.ApiClient:
    ends = time.monotonic() + seconds
    return http_api.ApiClient(echo.url, lambda: ends - time.monotonic(), agent="test")


def served(body: str, request: Any, *, raw: bytes | None = None) -> tuple[int, Any, str]:
    done = subprocess.run(
        ["python3", "-c", PREAMBLE + body],
        input=json.dumps(request).encode() if raw is None else raw,
        capture_output=True,
        env={"PATH": interpreter_path("/usr/bin:/bin")},
        timeout=WAIT_LIMIT,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr.decode()


POLL = {"protocol": 2, "command": "poll", "context": {"ductile_plugin": "twin"}}


def test_response_has_result_state_events_and_logs() -> None:
    body = (
        "def poll(r):\n"
        " a = Response('done', state={'n': 1})\n"
        " a.emit('t', {'x': 1}, key=f'{r.instance}:1')\n"
        " a.log('warn', 'w')\n"
        " return a\n"
        "serve({'poll': poll})"
    )
    assert served(body, POLL) == (
        0,
        {
            "status": "ok",
            "result": "done",
            "state_updates": {"n": 1},
            "events": [{"type": "t", "payload": {"x": 1}, "dedupe_key": "twin:1"}],
            "logs": [{"level": "warn", "message": "w"}],
        },
        "",
    )


@pytest.mark.parametrize(
    ("raises", "code", "retry"),
    [("Failure('f')", 1, True), ("Failure('f', retry=False)", 1, False),
     ("ConfigError('f')", 78, False)],
)  # fmt: skip
def test_failure_becomes_an_error_response(raises: str, code: int, retry: bool) -> None:
    body = f"def poll(r): raise {raises}\nserve({{'poll': poll}})"
    assert served(body, POLL) == (code, {"status": "error", "error": "f", "retry": retry}, "")


def test_unexpected_exception_is_reported_without_its_message() -> None:
    body = f"def poll(r):\n raise ValueError({SECRET!r})\nserve({{'poll': poll}})"
    code, response, stderr = served(body, POLL)
    assert code == 1
    assert "ValueError at <string>" in response["error"]
    assert SECRET not in response["error"] + stderr


def test_other_protocol_is_rejected() -> None:
    assert served("serve({})", {**POLL, "protocol": 1})[0] == 78


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff"])
def test_invalid_request_gets_an_error_response(raw: bytes) -> None:
    code, response, _ = served("serve({})", None, raw=raw)
    assert (code, response["status"]) == (1, "error")


def test_lone_surrogate_is_replaced() -> None:
    body = "serve({'poll': lambda r: Response('a\\ud800b')})"
    assert served(body, POLL)[1]["result"] == "a?b"


@pytest.mark.parametrize(
    ("deadline", "least", "most"),
    [("2001-01-01T00:00:00Z", -1e12, 0), ("", 3600, 3600), ("2001-01-01T00:00:00", -1e12, 0)],
)
def test_remaining_time_comes_from_the_deadline(deadline: str, least: float, most: float) -> None:
    assert least <= Request({"deadline_at": deadline}).remaining() <= most


# Over the wire


def test_form_and_query_are_encoded(echo: Echo) -> None:
    reply = site(echo).send("POST", "/x", query={"q": "a b"}, form={"f": "ä&="})
    assert reply.json() == {"path": "/x", "form": {"f": "ä&="}, "query": {"q": "a b"}}


def test_redirect_is_not_followed(echo: Echo) -> None:
    echo.next("/x", FakeReply(status=302, headers={"Location": f"{echo.url}/y"}))
    assert site(echo).send("GET", "/x", headers={"Authorization": SECRET}).status == 302
    assert echo.paths() == ["/x"]


def test_body_over_the_limit_is_rejected(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "MAX_BODY", 1000)
    echo.next("/x", FakeReply(b"x" * 1001))
    with pytest.raises(Failure, match="more than"):
        site(echo).send("GET", "/x")


@pytest.mark.parametrize(
    "reply", [FakeReply(hangs=True), FakeReply(drips=True)], ids=["hangs", "drips"]
)
def test_slow_reply_is_aborted_at_the_deadline(
    echo: Echo, reply: FakeReply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_api, "MAX_REQUEST_SECONDS", 0.3)
    echo.next("/x", reply)
    with pytest.raises(Failure, match="did not reply"):
        site(echo).send("GET", "/x")


def test_no_request_is_sent_without_time(echo: Echo) -> None:
    with pytest.raises(Failure, match="no time left"):
        site(echo, seconds=2).send("GET", "/x")
    assert echo.requests == []


def test_connection_error_does_not_reveal_the_url(echo: Echo) -> None:
    client = http_api.ApiClient("http://127.0.0.1:1", lambda: 30.0, agent="test")
    with pytest.raises(Failure) as failure:
        client.send("GET", f"/{SECRET}", query={"token": SECRET}, headers={"X": SECRET})
    assert "127.0.0.1 cannot be reached" in str(failure.value)
    assert SECRET not in str(failure.value)


def test_invalid_header_is_rejected_without_quoting_it(echo: Echo) -> None:
    with pytest.raises(Failure) as failure:
        site(echo).send("GET", "/x", headers={"Authorization": f"{SECRET}\r\nX: y"})
    assert SECRET not in str(failure.value)
    assert echo.requests == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"NaN",
        b'{"n": 99999999999999999999}',
        b'{"n": 1e999}',
        b"[" * 100_000,
    ],
)
def test_body_that_is_not_an_object_is_a_failure(body: bytes) -> None:
    with pytest.raises(Failure):
        http_api.Reply("h", 200, {}, body).json()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("99999999999999999999", http_api.MAX_RETRY_AFTER),
        (formatdate(1000 + 90, usegmt=True), 90),
        (formatdate(1000 - 90, usegmt=True), 0),
        ("soon", 7),
        ("-5", 7),
        ("", 7),
    ],
)
def test_retry_after_uses_the_clock_of_the_server(header: str, seconds: float) -> None:
    headers = {"Retry-After": header, "Date": formatdate(1000, usegmt=True)}
    assert http_api.Reply("h", 429, headers, b"").retry_after(7) == seconds


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org",
        "ftp://example.org",
        "https://",
        "https://user:secret@example.org",
        "https://example.org/?a=b",
        "https://[::1",
        "https://example.org:port",
        "",
    ],
)
def test_plain_http_is_allowed_only_for_loopback(url: str) -> None:
    with pytest.raises(ConfigError):
        http_api.ApiClient(url, lambda: 30.0, agent="test")


# Tokens


def session(state: dict[str, Any], grants: list[Any], **config: str) -> oauth2.Session:
    def renew(refresh_token: str) -> oauth2.Grant:
        granted = grants.pop(0)
        if isinstance(granted, Exception):
            raise granted
        return oauth2.Grant(granted, "h")

    return oauth2.Session(config, state, 1000.0, renew=renew)


@pytest.mark.parametrize(
    ("expiry", "token"),
    [(1000 + oauth2.SKEW + 1, "old"), (1000 + oauth2.SKEW, "new"), (0, "new"), (None, "old")],
)
def test_token_is_refreshed_before_it_expires(expiry: int | None, token: str) -> None:
    state = {"access_token": "old", "refresh_token": "r", "token_expiry": expiry}
    assert session(state, [{"access_token": "new"}]).access_token() == token


def test_refresh_without_a_new_refresh_token_keeps_the_old_one() -> None:
    held = session({"refresh_token": "r"}, [{"access_token": "a", "expires_in": 60}])
    held.access_token()
    assert held.state == {"access_token": "a", "refresh_token": "r", "token_expiry": 1060}
    assert not held.rotated


def test_token_is_refreshed_once_per_run() -> None:
    held = session({"refresh_token": "r"}, [{"access_token": "a", "expires_in": 0}])
    assert held.access_token() == held.access_token() == "a"
    with pytest.raises(oauth2.Unauthorized):
        held.renew()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "a\nb"},
        {"access_token": "a", "refresh_token": 7},
    ],
)
def test_invalid_grant_is_a_failure(document: dict[str, Any]) -> None:
    with pytest.raises(Failure):
        oauth2.Grant(document, "h")


@pytest.mark.parametrize(
    ("given", "life"),
    [(None, 3600), (True, 3600), ("60", 60), (-5, 0), (10**15, oauth2.MAX_LIFETIME), ([], 3600)],
)
def test_lifetime_of_a_token_is_limited(given: Any, life: int) -> None:
    assert oauth2.Grant({"access_token": "a", "expires_in": given}, "h").lifetime == life


def test_tokens_of_the_configuration_are_used_once() -> None:
    first = session({}, [], refresh_token="one")
    assert first.state["refresh_token"] == "one"
    rotated = {**first.state, "refresh_token": "two"}
    assert session(rotated, [], refresh_token="one").state["refresh_token"] == "two"
    assert session(rotated, [], refresh_token="three").state["refresh_token"] == "three"


def test_failure_succeeds_only_after_a_rotation() -> None:
    def fails() -> Response:
        raise Failure("later")

    same = session({"refresh_token": "r"}, [{"access_token": "a", "refresh_token": "r"}])
    same.access_token()
    with pytest.raises(Failure, match="later"):
        oauth2.keep_tokens(same, fails)
    other = session({"refresh_token": "r"}, [{"access_token": "a", "refresh_token": "s"}])
    other.access_token()
    response = oauth2.keep_tokens(other, fails)
    assert "later" in response.result
    assert response.state == other.state


@pytest.mark.parametrize(
    "response",
    [
        Response("x" * 11_000_000),
        Response("x", state={"x": "x" * 1_100_000}),
        Response(float("inf")),
        Response(object()),
    ],
    ids=["too long", "too much to remember", "no number", "no JSON"],
)
def test_oversized_response_does_not_lose_tokens(response: Response) -> None:
    with pytest.raises(Failure):
        response.encode()
    held = session({"refresh_token": "r"}, [{"access_token": "a", "refresh_token": "s"}])
    held.access_token()
    assert oauth2.keep_tokens(held, lambda: response).state == held.state


@pytest.mark.parametrize(
    ("retry_at", "waits"),
    [(1060, True), (1000, False), (999, False), (1000 + 10**7, False), ("soon", False)],
)
def test_stored_wait_is_respected_if_plausible(retry_at: Any, waits: bool) -> None:
    assert (oauth2.check_wait({"retry_at": retry_at}, 1000.0) is not None) is waits


def test_pkce_challenge_is_that_of_rfc_7636() -> None:
    # RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert oauth2.make_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_expired_authorization_must_be_restarted() -> None:
    query, state = oauth2.start_authorization({}, 1000.0, pkce=True)
    given = {"code": "c", "state": query["state"]}
    late = 1000.0 + oauth2.AUTHORIZE_WITHIN + 1
    assert oauth2.parse_callback(given, state, 1000.0)[0] == "c"
    with pytest.raises(Failure, match="authorize"):
        oauth2.parse_callback(given, state, late)
