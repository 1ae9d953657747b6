"""The tokens of the plugin `withings`: authorization, refresh and rotation."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.bundled.accounts import connect_withings as connect
from tests.bundled.accounts import get_state
from tests.bundled.bundled_site import BundledSite, list_events
from tests.bundled.fakes.server import FakeReply
from tests.bundled.fakes.withings import CLIENT_ID, REDIRECT, Withings
from tests.engine.site import Running

MORNING = int(time.time()) - 86_400


def records(running: Running) -> list[str]:
    return [event["payload"]["record"] for event in list_events(running, "withings")]


def get_response(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["result"]
    return found


def test_expired_token_is_refreshed_and_rotated(site: BundledSite, withings: Withings) -> None:
    withings.life = 1
    connect(site, withings)
    with site.running() as running:
        for _ in range(3):
            assert running.run("withings")["status"] == "succeeded"
    used = [
        request.form["refresh_token"]
        for request in withings.requests
        if request.path == "/v2/oauth2"
    ]
    assert used == [tokens.refresh for tokens in withings.tokens[:3]]
    assert withings.refusals == []


def test_concurrent_polls_use_a_refresh_token_once(site: BundledSite, withings: Withings) -> None:
    withings.life = 1
    connect(site, withings)
    with site.running() as running:
        jobs = [running.put("withings") for _ in range(4)]
        assert {running.ended(job)["status"] for job in jobs} == {"succeeded"}
    assert withings.refusals == []


@pytest.mark.parametrize("ahead", [4 * 3600, -4 * 3600])
def test_clock_of_the_provider_may_differ(
    site: BundledSite, withings: Withings, ahead: float
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    with site.running() as running:
        running.run("withings")
        withings.ahead += ahead
        withings.weigh(2, at=MORNING + 60)
        assert running.run("withings")["status"] == "succeeded"
        assert records(running) == ["1", "2"]
    assert set(withings.refusals) <= {"access_token"}


ERRORS = {
    "503": FakeReply(status=503),
    "truncated": FakeReply(body=b"{"),
    "infinite": FakeReply(body=b'{"status": 1e999}'),
    "no status": FakeReply(body=b'{"status": "0"}'),
    "another status": FakeReply(body={"status": 2556, "body": {}}),
    "hangs": FakeReply(hangs=True, body=b"{}"),
}


def test_rotated_token_is_stored_after_any_failure(site: BundledSite, withings: Withings) -> None:
    withings.life = 1
    connect(site, withings, poll="4500ms")
    withings.weigh(1, at=MORNING)
    with site.running() as running:
        for name, reply in ERRORS.items():
            withings.next("/measure", reply)
            job = running.run("withings")
            assert job["status"] == "succeeded", name
            assert "but the run failed" in get_response(job)["result"], name
            assert get_response(job)["logs"][0]["level"] == "error"
            assert get_state(running, "withings")["refresh_token"] == withings.tokens[-1].refresh, (
                name
            )
        assert list_events(running, "withings") == []
        running.run("withings")
        assert records(running) == ["1"]
    assert withings.refusals == []


def test_transient_error_after_a_refresh_is_retried_at_once(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.next("/measure", FakeReply(status=503))
    done = site.direct("withings", "poll")
    assert len(done.response["events"]) == 1
    withings.next("/measure", FakeReply(status=503))
    again = site.direct("withings", "poll", state=done.response["state_updates"])
    assert again.response["status"] == "error"


def test_errors_with_a_valid_token_fail_the_job(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    with site.running() as running:
        running.run("withings")
        withings.next("/measure", FakeReply(status=503))
        job = running.run("withings")
    assert job["status"] == "dead"
    assert job["last_error"] == "127.0.0.1 returned status 503"


def test_unexpected_error_after_a_refresh_stores_the_tokens(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    site.mutate("withings/run.py", "    rest = ", "    raise KeyError(session.state)\n    rest = ")
    with site.running() as running:
        job = running.run("withings")
        assert get_state(running, "withings")["refresh_token"] == withings.tokens[-1].refresh
    assert "unexpected error: KeyError at run.py" in get_response(job)["result"]
    assert "canary" not in json.dumps(get_response(job))


def test_without_keep_tokens_the_tokens_are_lost(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, poll="5s")
    site.mutate("lib/oauth2.py", "if not session.rotated:", "if True:")
    # The use of the new access token invalidates the old refresh token.
    withings.next(
        "/measure", lambda request: (withings.reply_to(request), FakeReply(status=500))[1]
    )
    with site.running() as running:
        assert running.run("withings")["status"] == "dead"
        assert get_state(running, "withings") == {}
        assert running.run("withings")["status"] == "failed"
    assert withings.refusals == ["refresh_token"]


def test_refresh_without_a_reply_is_repeated(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.next(
        "/v2/oauth2", lambda request: (withings.reply_to(request), FakeReply(status=502))[1]
    )
    with site.running() as running:
        assert running.run("withings")["status"] == "dead"
        assert running.run("withings")["status"] == "succeeded"
        assert records(running) == ["1"]


@pytest.mark.parametrize("command", ["poll", "refresh"])
def test_health_reports_a_rejected_refresh_token(
    site: BundledSite, withings: Withings, command: str
) -> None:
    withings.life = 1
    connect(site, withings)
    refused = FakeReply({"status": 503, "error": "invalid refresh_token"})
    with site.running() as running:
        assert "not been accepted yet" in get_response(running.run("withings", "health"))["result"]
        assert running.run("withings", command)["status"] == "succeeded"
        assert "authorized" in get_response(running.run("withings", "health"))["result"]
        withings.next("/v2/oauth2", refused, refused)
        first = running.run("withings", command)
        assert get_response(first)["logs"][0]["level"] == "error"
        health = running.run("withings", "health")
        assert health["status"] == "failed"
        assert "rejected the refresh token since 20" in health["last_error"]
        assert running.run("withings", command)["status"] == "failed"
        assert running.run("withings", command)["status"] == "succeeded"
        assert running.run("withings", "health")["status"] == "succeeded"
        assert get_state(running, "withings")["rejected_at"] is None


def test_refresh_stores_new_tokens_without_using_them(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    with site.running() as running:
        assert running.run("withings", "refresh")["status"] == "succeeded"
        assert withings.paths() == ["/v2/oauth2"]
        running.run("withings")
    assert withings.paths() == ["/v2/oauth2", "/measure"]


def test_authorization_code_is_used_once(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, refresh_token=None)
    withings.weigh(1, at=MORNING)
    with site.running() as running:
        poll = running.run("withings")
        assert poll["status"] == "failed"
        assert "authorize" in poll["last_error"]
        link = get_response(running.run("withings", "authorize"))["result"].removeprefix("open ")
        query = {key: values[0] for key, values in parse_qs(urlsplit(link).query).items()}
        assert (query["response_type"], query["client_id"]) == ("code", CLIENT_ID)
        code = withings.consent(query["redirect_uri"], query["scope"])
        back = f"{REDIRECT}?code={code}&state={query['state']}"
        assert running.run("withings", "oauth_callback", {"url": back})["status"] == "succeeded"
        assert running.run("withings")["status"] == "succeeded"
        assert records(running) == ["1"]
        repeated = running.run("withings", "oauth_callback", {"url": back})
        assert repeated["status"] == "failed"
        assert "pending_state" not in get_state(running, "withings")
    assert withings.refusals == []


def test_refresh_during_an_authorization_keeps_it(site: BundledSite, withings: Withings) -> None:
    withings.life = 1
    connect(site, withings)
    with site.running() as running:
        link = get_response(running.run("withings", "authorize"))["result"]
        running.run("withings")
        nonce = parse_qs(urlsplit(link).query)["state"][0]
        given = {"code": withings.consent(), "state": nonce}
        assert running.run("withings", "oauth_callback", given)["status"] == "succeeded"
    assert withings.refusals == []


def test_callback_of_another_authorization_is_rejected(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings, refresh_token=None)
    state = site.direct("withings", "authorize").response["state_updates"]
    forged = {"code": withings.consent(), "state": "another"}
    done = site.direct("withings", "oauth_callback", state=state, payload=forged)
    assert "another authorization" in done.response["error"]
    assert withings.requests == []


def test_denied_access_is_reported(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, refresh_token=None)
    state = site.direct("withings", "authorize").response["state_updates"]
    denied = {"url": f"{REDIRECT}?error=access_denied"}
    done = site.direct("withings", "oauth_callback", state=state, payload=denied)
    assert "not granted" in done.response["error"]


def test_disconnect_revokes_and_deletes_the_tokens(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    with site.running() as running:
        running.run("withings")
        assert running.run("withings", "disconnect")["status"] == "succeeded"
        state = get_state(running, "withings")
        assert running.run("withings")["status"] == "failed"
        assert running.run("withings", "disconnect")["status"] == "succeeded"
    assert withings.tokens == []
    assert state["access_token"] is state["refresh_token"] is None
    assert withings.refusals == []


def test_new_refresh_token_of_the_configuration_is_used(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    with site.running() as running:
        running.run("withings")
    withings.tokens.clear()
    connect(site, withings)
    with site.running() as running:
        assert running.run("withings")["status"] == "succeeded"


@pytest.mark.parametrize(
    ("late", "redirect", "refused"),
    [(31, REDIRECT, "code expired"), (0, "https://example.org/other", "redirect_uri")],
)
def test_expired_code_and_wrong_redirect_are_rejected(
    site: BundledSite, withings: Withings, late: float, redirect: str, refused: str
) -> None:
    connect(site, withings, refresh_token=None)
    started = site.direct("withings", "authorize").response
    nonce = parse_qs(urlsplit(started["result"]).query)["state"][0]
    given = {"code": withings.consent(redirect), "state": nonce}
    withings.ahead = late
    state = started["state_updates"]
    done = site.direct("withings", "oauth_callback", state=state, payload=given)
    assert done.response["retry"] is False
    assert withings.refusals == [refused]


def test_grant_with_another_scope_is_rejected(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, refresh_token=withings.issue(scope="user.info").refresh)
    done = site.direct("withings", "poll")
    done = site.direct("withings", "poll", state=done.response["state_updates"])
    assert "denies access to the measures" in done.response["error"]
    assert withings.refusals == ["scope", "scope"]
