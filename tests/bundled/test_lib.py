"""What the bundled plugins share: protocol, HTTP and tokens, in their hardest moments."""

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

from tests.bundled.house import PLUGINS, interpreter_path
from tests.bundled.standins.server import Asked, Standin, Told
from tests.waiting import WAIT_LIMIT

sys.path.append(str(PLUGINS / "lib"))
import oauth2
import web
from protocol import Answer, Failure, Misconfigured, Request

SECRET = "canary-token"
PREAMBLE = (
    f"import sys\nsys.path.insert(0, {str(PLUGINS / 'lib')!r})\n"
    "from protocol import Answer, Failure, Misconfigured, serve\n"
)


class Echo(Standin):
    def answer(self, asked: Asked) -> Told:
        return Told({"path": asked.path, "form": asked.form, "query": dict(asked.query)})


@pytest.fixture
def echo() -> Iterator[Echo]:
    before = signal.getsignal(signal.SIGALRM)
    with Echo() as standin:
        yield standin
    signal.signal(signal.SIGALRM, before)


def site(echo: Echo, seconds: float = 30.0) -> web.Site:
    ends = time.monotonic() + seconds
    return web.Site(echo.url, lambda: ends - time.monotonic(), agent="test")


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


def test_an_answer_holds_what_was_put_into_it() -> None:
    body = (
        "def poll(r):\n"
        " a = Answer('done', state={'n': 1})\n"
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
     ("Misconfigured('f')", 78, False)],
)  # fmt: skip
def test_a_failure_is_an_error_answer(raises: str, code: int, retry: bool) -> None:
    body = f"def poll(r): raise {raises}\nserve({{'poll': poll}})"
    assert served(body, POLL) == (code, {"status": "error", "error": "f", "retry": retry}, "")


def test_a_bug_tells_its_place_and_not_its_message() -> None:
    body = f"def poll(r):\n raise ValueError({SECRET!r})\nserve({{'poll': poll}})"
    code, answer, stderr = served(body, POLL)
    assert code == 1
    assert "ValueError at <string>" in answer["error"]
    assert SECRET not in answer["error"] + stderr


def test_another_protocol_is_refused_as_a_matter_of_configuration() -> None:
    assert served("serve({})", {**POLL, "protocol": 1})[0] == 78


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff"])
def test_a_request_that_is_none_is_answered_with_an_error(raw: bytes) -> None:
    code, answer, _ = served("serve({})", None, raw=raw)
    assert (code, answer["status"]) == (1, "error")


def test_half_a_surrogate_pair_does_not_spoil_an_answer() -> None:
    body = "serve({'poll': lambda r: Answer('a\\ud800b')})"
    assert served(body, POLL)[1]["result"] == "a?b"


@pytest.mark.parametrize(
    ("deadline", "least", "most"),
    [("2001-01-01T00:00:00Z", -1e12, 0), ("", 3600, 3600), ("2001-01-01T00:00:00", -1e12, 0)],
)
def test_the_time_that_is_left_is_told(deadline: str, least: float, most: float) -> None:
    assert least <= Request({"deadline_at": deadline}).remaining() <= most


# Over the wire


def test_a_form_and_a_query_arrive_as_they_were_given(echo: Echo) -> None:
    reply = site(echo).send("POST", "/x", query={"q": "a b"}, form={"f": "ä&="})
    assert reply.json() == {"path": "/x", "form": {"f": "ä&="}, "query": {"q": "a b"}}


def test_a_redirect_is_not_followed(echo: Echo) -> None:
    echo.next("/x", Told(status=302, headers={"Location": f"{echo.url}/y"}))
    assert site(echo).send("GET", "/x", headers={"Authorization": SECRET}).status == 302
    assert echo.paths() == ["/x"]


def test_a_body_without_end_is_cut_off(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "LARGEST_BODY", 1000)
    echo.next("/x", Told(b"x" * 1001))
    with pytest.raises(Failure, match="more than"):
        site(echo).send("GET", "/x")


@pytest.mark.parametrize("told", [Told(hangs=True), Told(drips=True)], ids=["hangs", "drips"])
def test_a_whole_exchange_is_bounded_however_slowly_it_goes(
    echo: Echo, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "LONGEST_REQUEST", 0.3)
    echo.next("/x", told)
    with pytest.raises(Failure, match="did not answer"):
        site(echo).send("GET", "/x")


def test_without_time_nothing_is_asked(echo: Echo) -> None:
    with pytest.raises(Failure, match="no time is left"):
        site(echo, seconds=2).send("GET", "/x")
    assert echo.asked == []


def test_nobody_there_is_told_without_the_address_that_was_asked_for(echo: Echo) -> None:
    nobody = web.Site("http://127.0.0.1:1", lambda: 30.0, agent="test")
    with pytest.raises(Failure) as failure:
        nobody.send("GET", f"/{SECRET}", query={"token": SECRET}, headers={"X": SECRET})
    assert "127.0.0.1 cannot be reached" in str(failure.value)
    assert SECRET not in str(failure.value)


def test_a_header_that_would_break_out_is_refused_untold(echo: Echo) -> None:
    with pytest.raises(Failure) as failure:
        site(echo).send("GET", "/x", headers={"Authorization": f"{SECRET}\r\nX: y"})
    assert SECRET not in str(failure.value)
    assert echo.asked == []


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
def test_a_body_that_is_no_object_is_a_failure(body: bytes) -> None:
    with pytest.raises(Failure):
        web.Reply("h", 200, {}, body).json()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("99999999999999999999", web.LONGEST_RETRY),
        (formatdate(1000 + 90, usegmt=True), 90),
        (formatdate(1000 - 90, usegmt=True), 0),
        ("soon", 7),
        ("-5", 7),
        ("", 7),
    ],
)
def test_retry_after_is_read_by_the_servers_own_clock(header: str, seconds: float) -> None:
    headers = {"Retry-After": header, "Date": formatdate(1000, usegmt=True)}
    assert web.Reply("h", 429, headers, b"").retry_after(7) == seconds


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
def test_credentials_go_over_tls_or_stay_on_this_machine(url: str) -> None:
    with pytest.raises(Misconfigured):
        web.Site(url, lambda: 30.0, agent="test")


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
def test_a_token_counts_as_ended_a_little_before_it_has(expiry: int | None, token: str) -> None:
    state = {"access_token": "old", "refresh_token": "r", "token_expiry": expiry}
    assert session(state, [{"access_token": "new"}]).access_token() == token


def test_a_renewal_without_a_refresh_token_keeps_the_old_one() -> None:
    held = session({"refresh_token": "r"}, [{"access_token": "a", "expires_in": 60}])
    held.access_token()
    assert held.state == {"access_token": "a", "refresh_token": "r", "token_expiry": 1060}
    assert not held.rotated


def test_a_token_that_is_new_is_not_renewed_again_in_the_same_run() -> None:
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
def test_a_grant_that_is_none_is_a_failure(document: dict[str, Any]) -> None:
    with pytest.raises(Failure):
        oauth2.Grant(document, "h")


@pytest.mark.parametrize(
    ("given", "life"),
    [(None, 3600), (True, 3600), ("60", 60), (-5, 0), (10**15, oauth2.LONGEST_LIFE), ([], 3600)],
)
def test_a_life_that_makes_no_sense_is_bounded(given: Any, life: int) -> None:
    assert oauth2.Grant({"access_token": "a", "expires_in": given}, "h").life == life


def test_tokens_of_the_configuration_are_taken_over_once() -> None:
    first = session({}, [], refresh_token="one")
    assert first.state["refresh_token"] == "one"
    rotated = {**first.state, "refresh_token": "two"}
    assert session(rotated, [], refresh_token="one").state["refresh_token"] == "two"
    assert session(rotated, [], refresh_token="three").state["refresh_token"] == "three"


def test_only_a_rotated_token_makes_a_failure_a_success() -> None:
    def fails() -> Answer:
        raise Failure("later")

    same = session({"refresh_token": "r"}, [{"access_token": "a", "refresh_token": "r"}])
    same.access_token()
    with pytest.raises(Failure, match="later"):
        oauth2.kept(same, fails)
    other = session({"refresh_token": "r"}, [{"access_token": "a", "refresh_token": "s"}])
    other.access_token()
    answer = oauth2.kept(other, fails)
    assert "later" in answer.result
    assert answer.state == other.state


@pytest.mark.parametrize(
    "answer",
    [
        Answer("x" * 11_000_000),
        Answer("x", state={"x": "x" * 1_100_000}),
        Answer(float("inf")),
        Answer(object()),
    ],
    ids=["too long", "too much to remember", "no number", "no JSON"],
)
def test_an_answer_that_the_gateway_would_not_take_costs_no_token(answer: Answer) -> None:
    with pytest.raises(Failure):
        answer.encoded()
    held = session({"refresh_token": "r"}, [{"access_token": "a", "refresh_token": "s"}])
    held.access_token()
    assert oauth2.kept(held, lambda: answer).state == held.state


@pytest.mark.parametrize(
    ("retry_at", "waits"),
    [(1060, True), (1000, False), (999, False), (1000 + 10**7, False), ("soon", False)],
)
def test_a_wait_is_kept_unless_it_makes_no_sense(retry_at: Any, waits: bool) -> None:
    assert (oauth2.waiting({"retry_at": retry_at}, 1000.0) is not None) is waits


def test_the_challenge_is_that_of_the_standard() -> None:
    # RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert oauth2.challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_an_authorization_that_took_too_long_starts_again() -> None:
    query, state = oauth2.authorization({}, 1000.0, pkce=True)
    given = {"code": "c", "state": query["state"]}
    late = 1000.0 + oauth2.AUTHORIZE_WITHIN + 1
    assert oauth2.callback(given, state, 1000.0)[0] == "c"
    with pytest.raises(Failure, match="authorize"):
        oauth2.callback(given, state, late)
