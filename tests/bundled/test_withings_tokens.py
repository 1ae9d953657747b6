"""The plugin `withings`: how it gets in, and why it is never locked out."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.bundled.accounts import connect_withings as connect
from tests.bundled.accounts import state_of
from tests.bundled.house import BundledSite, emitted
from tests.bundled.standins.server import Told
from tests.bundled.standins.withings import CLIENT_ID, REDIRECT, Withings
from tests.engine.site import Running

MORNING = int(time.time()) - 86_400


def records(house: Running) -> list[str]:
    return [event["payload"]["record"] for event in emitted(house, "withings")]


def answer(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["result"]
    return found


def test_an_expired_token_is_renewed_and_the_rotated_one_is_used_next(
    site: BundledSite, withings: Withings
) -> None:
    withings.life = 1
    connect(site, withings)
    with site.running() as house:
        for _ in range(3):
            assert house.run("withings")["status"] == "succeeded"
    used = [asked.form["refresh_token"] for asked in withings.asked if asked.path == "/v2/oauth2"]
    assert used == [tokens.refresh for tokens in withings.tokens[:3]]
    assert withings.refusals == []


def test_polls_that_come_together_do_not_spend_one_token_twice(
    site: BundledSite, withings: Withings
) -> None:
    withings.life = 1
    connect(site, withings)
    with site.running() as house:
        jobs = [house.put("withings") for _ in range(4)]
        assert {house.ended(job)["status"] for job in jobs} == {"succeeded"}
    assert withings.refusals == []


@pytest.mark.parametrize("ahead", [4 * 3600, -4 * 3600])
def test_a_provider_whose_clock_differs_is_no_problem(
    site: BundledSite, withings: Withings, ahead: float
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    with site.running() as house:
        house.run("withings")
        withings.ahead += ahead
        withings.weigh(2, at=MORNING + 60)
        assert house.run("withings")["status"] == "succeeded"
        assert records(house) == ["1", "2"]
    assert set(withings.refusals) <= {"access_token"}


TROUBLES = {
    "503": Told(status=503),
    "500": Told(status=500, body=b"<html>"),
    "cut off": Told(body=b"{"),
    "list": Told(body=b"[1]"),
    "infinite": Told(body=b'{"status": 1e999}'),
    "no status": Told(body=b'{"status": "0"}'),
    "another status": Told(body={"status": 2556, "body": {}}),
    "redirect": Told(status=302, headers={"Location": "https://example.org/"}),
    "hangs": Told(hangs=True, body=b"{}"),
    "drips": Told(drips=True),
}


def test_a_rotated_token_survives_whatever_fails_after_it(
    site: BundledSite, withings: Withings
) -> None:
    withings.life = 1
    connect(site, withings, poll="4500ms")
    withings.weigh(1, at=MORNING)
    with site.running() as house:
        for name, trouble in TROUBLES.items():
            withings.next("/measure", trouble)
            job = house.run("withings")
            assert job["status"] == "succeeded", name
            assert "nothing else was done" in answer(job)["result"], name
            assert answer(job)["logs"][0]["level"] == "error"
            assert state_of(house, "withings")["refresh_token"] == withings.tokens[-1].refresh, name
        assert emitted(house, "withings") == []
        house.run("withings")
        assert records(house) == ["1"]
    assert withings.refusals == []


def test_after_a_renewal_passing_trouble_is_tried_again_at_once(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.next("/measure", Told(status=503))
    done = site.direct("withings", "poll")
    assert len(done.answer["events"]) == 1
    withings.next("/measure", Told(status=503))
    again = site.direct("withings", "poll", state=done.answer["state_updates"])
    assert again.answer["status"] == "error"


def test_with_a_good_token_trouble_is_a_failed_job(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    with site.running() as house:
        house.run("withings")
        withings.next("/measure", Told(status=503))
        job = house.run("withings")
    assert job["status"] == "dead"
    assert job["last_error"] == "127.0.0.1 answered 503"


def test_a_bug_after_a_renewal_keeps_the_tokens_and_tells_no_more_than_its_place(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    site.mutate("withings/run.py", "    left = ", "    raise KeyError(session.state)\n    left = ")
    with site.running() as house:
        job = house.run("withings")
        assert state_of(house, "withings")["refresh_token"] == withings.tokens[-1].refresh
    assert "a bug: KeyError at run.py" in answer(job)["result"]
    assert "canary" not in json.dumps(answer(job))


def test_the_guard_is_what_keeps_the_tokens(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, poll="5s")
    site.mutate("lib/oauth2.py", "if not session.rotated:", "if True:")
    # Used once, the new access token ends the old refresh token, and nobody has the new one.
    withings.next("/measure", lambda asked: (withings.answer(asked), Told(status=500))[1])
    with site.running() as house:
        assert house.run("withings")["status"] == "dead"
        assert state_of(house, "withings") == {}
        assert house.run("withings")["status"] == "failed"
    assert withings.refusals == ["refresh_token"]


def test_a_renewal_whose_answer_is_lost_is_made_again(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.next("/v2/oauth2", lambda asked: (withings.answer(asked), Told(status=502))[1])
    with site.running() as house:
        assert house.run("withings")["status"] == "dead"
        assert house.run("withings")["status"] == "succeeded"
        assert records(house) == ["1"]


def test_refresh_stores_new_tokens_without_using_them(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    with site.running() as house:
        assert house.run("withings", "refresh")["status"] == "succeeded"
        assert withings.paths() == ["/v2/oauth2"]
        house.run("withings")
    assert withings.paths() == ["/v2/oauth2", "/measure"]


def test_a_person_grants_access_once(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, refresh_token=None)
    withings.weigh(1, at=MORNING)
    with site.running() as house:
        poll = house.run("withings")
        assert poll["status"] == "failed"
        assert "authorize" in poll["last_error"]
        link = answer(house.run("withings", "authorize"))["result"].removeprefix("open ")
        query = {key: values[0] for key, values in parse_qs(urlsplit(link).query).items()}
        assert (query["response_type"], query["client_id"]) == ("code", CLIENT_ID)
        code = withings.consent(query["redirect_uri"], query["scope"])
        back = f"{REDIRECT}?code={code}&state={query['state']}"
        assert house.run("withings", "oauth_callback", {"url": back})["status"] == "succeeded"
        assert house.run("withings")["status"] == "succeeded"
        assert records(house) == ["1"]
        repeated = house.run("withings", "oauth_callback", {"url": back})
        assert repeated["status"] == "failed"
        assert "pending_state" not in state_of(house, "withings")
    assert withings.refusals == []


def test_a_renewal_in_between_does_not_end_an_authorization(
    site: BundledSite, withings: Withings
) -> None:
    withings.life = 1
    connect(site, withings)
    with site.running() as house:
        link = answer(house.run("withings", "authorize"))["result"]
        house.run("withings")
        nonce = parse_qs(urlsplit(link).query)["state"][0]
        given = {"code": withings.consent(), "state": nonce}
        assert house.run("withings", "oauth_callback", given)["status"] == "succeeded"
    assert withings.refusals == []


def test_an_answer_to_another_authorization_is_refused(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings, refresh_token=None)
    state = site.direct("withings", "authorize").answer["state_updates"]
    forged = {"code": withings.consent(), "state": "somebody-elses"}
    done = site.direct("withings", "oauth_callback", state=state, payload=forged)
    assert "another authorization" in done.answer["error"]
    assert withings.asked == []


def test_access_that_is_not_granted_is_said_so(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, refresh_token=None)
    state = site.direct("withings", "authorize").answer["state_updates"]
    denied = {"url": f"{REDIRECT}?error=access_denied"}
    done = site.direct("withings", "oauth_callback", state=state, payload=denied)
    assert "not granted" in done.answer["error"]


def test_disconnect_revokes_with_a_signature_and_forgets(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    with site.running() as house:
        house.run("withings")
        assert house.run("withings", "disconnect")["status"] == "succeeded"
        state = state_of(house, "withings")
        assert house.run("withings")["status"] == "failed"
        assert house.run("withings", "disconnect")["status"] == "succeeded"
    assert withings.tokens == []
    assert state["access_token"] is state["refresh_token"] is None
    assert withings.refusals == []


def test_a_new_refresh_token_in_the_configuration_is_taken_over(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    with site.running() as house:
        house.run("withings")
    withings.tokens.clear()
    connect(site, withings)
    with site.running() as house:
        assert house.run("withings")["status"] == "succeeded"
