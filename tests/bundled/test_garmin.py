"""The plugin `garmin` with a fake of Garmin Connect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bundled.accounts import DAYS, get_state
from tests.bundled.accounts import connect_garmin as connect
from tests.bundled.accounts import connect_garmin_signing as sign
from tests.bundled.bundled_site import BundledSite, ledger_text, list_events, process_arguments
from tests.bundled.fakes.garmin import (
    EXCHANGE,
    MFA_TOKEN,
    NAME,
    OAUTH_TOKEN,
    RENEWAL,
    Garmin,
)
from tests.bundled.fakes.server import FakeReply
from tests.engine.site import Running
from tests.waiting import until

DAILY = f"/usersummary-service/usersummary/daily/{NAME}"
WEIGHTS = "/weight-service/weight/dateRange"


def records(running: Running) -> list[str]:
    return [event["payload"]["record"] for event in list_events(running, "garmin")]


def test_days_and_weigh_ins_are_emitted_once(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    garmin.live(DAYS[1], totalSteps=9100, restingHeartRate=52, averageStressLevel=-1)
    garmin.live(DAYS[3], totalSteps=12)
    garmin.weigh(1_700_000_001, DAYS[1], 81_250.0, bodyFat=21.3, boneMass=3500)
    with site.running() as running:
        for _ in range(2):
            assert running.run("garmin")["status"] == "succeeded"
        assert records(running) == ["weight:1700000001", f"daily:{DAYS[1]}"]
        weight, day = (event["payload"] for event in list_events(running, "garmin"))
    assert weight["measures"] == {"weight": 81.25, "fat_ratio": 21.3, "bone_mass": 3.5}
    assert weight["measured_at"] == "2023-11-14T22:13:21Z"
    assert day["measures"] == {"steps": 9100, "resting_heart_rate": 52}
    assert day["units"] == {"steps": "steps", "resting_heart_rate": "bpm"}
    assert garmin.refusals == []


def test_poll_without_news_does_not_change_the_state(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    garmin.live(DAYS[1], totalSteps=9100)
    first = site.direct("garmin", "poll").response
    again = site.direct("garmin", "poll", state=first["state_updates"]).response
    assert "state_updates" not in again
    assert garmin.paths().count("/userprofile-service/socialProfile") == 1


def test_changed_day_is_emitted_with_a_new_revision(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    garmin.live(DAYS[1], totalSteps=100)
    with site.running() as running:
        running.run("garmin")
        garmin.live(DAYS[1], totalSteps=9100)
        running.run("garmin")
        first, second = list_events(running, "garmin")
    assert first["payload"]["record"] == second["payload"]["record"]
    assert first["dedupe_key"] != second["dedupe_key"]
    assert second["payload"]["measures"] == {"steps": 9100}


def test_today_is_included_if_configured(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin, include_today=True)
    garmin.live(DAYS[3], totalSteps=12)
    response = site.direct("garmin", "poll").response
    assert [event["payload"]["date"] for event in response["events"]] == [DAYS[3]]


def test_rotated_refresh_token_is_stored_after_any_failure(
    site: BundledSite, garmin: Garmin
) -> None:
    garmin.life = 1
    connect(site, garmin, poll="4500ms")
    garmin.live(DAYS[1], totalSteps=9100)
    errors = {
        "/userprofile-service/socialProfile": (
            FakeReply(status=503),
            FakeReply({"displayName": None}),
        ),
        DAILY: (
            FakeReply(body=b"<html>"),
            FakeReply({"privacyProtected": True}),
        ),
        WEIGHTS: (FakeReply(hangs=True),),
    }
    with site.running() as running:
        for path, replies in errors.items():
            for reply in replies:
                garmin.next(path, reply)
                job = running.run("garmin")
                assert job["status"] == "succeeded", (path, reply)
                assert "but the run failed" in job["result"]["result"], (path, reply)
                assert get_state(running, "garmin")["refresh_token"] in garmin.refresh
        assert list_events(running, "garmin") == []
        # With so little time, a run fetches one day.
        for _ in range(3):
            running.run("garmin")
        assert records(running) == [f"daily:{DAYS[1]}"]
    assert garmin.refusals == []


def test_errors_with_a_valid_token_fail_the_job(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    with site.running() as running:
        running.run("garmin")
        garmin.next(DAILY, FakeReply(status=502))
        job = running.run("garmin")
    assert (job["status"], job["last_error"]) == ("dead", "127.0.0.1 returned status 502")


def test_rejected_token_is_refreshed(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    with site.running() as running:
        running.run("garmin")
        garmin.access.clear()
        assert running.run("garmin")["status"] == "succeeded"
    assert garmin.refusals == ["access_token"]


def test_rate_limit_of_garmin_is_respected(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    garmin.next(WEIGHTS, FakeReply(status=429, headers={"Retry-After": "1800"}))
    with site.running() as running:
        first = running.run("garmin")
        request = len(garmin.requests)
        second = running.run("garmin")
        assert "for 1800 s" in first["result"]["result"]
        assert "rate limited by the provider" in second["result"]["result"]
        assert len(garmin.requests) == request
        assert get_state(running, "garmin")["refresh_token"] in garmin.refresh


def test_invalid_weigh_ins_are_skipped(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    garmin.weigh(1, DAYS[1], 80_000, timestampGMT="noon")
    garmin.weigh(2, DAYS[1], 80_000, timestampGMT=10**18)
    garmin.weigh(3, DAYS[1], -1)
    garmin.weigh(4, DAYS[1], 80_000)
    garmin.weights.append(None)  # type: ignore[arg-type]
    garmin.next(WEIGHTS, FakeReply({"dateWeightList": garmin.weights}))
    response = site.direct("garmin", "poll").response
    assert [event["payload"]["record"] for event in response["events"]] == ["weight:4"]


def test_refresh_stores_new_tokens_without_using_them(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    with site.running() as running:
        assert running.run("garmin", "refresh")["status"] == "succeeded"
        assert garmin.paths() == [RENEWAL]
        running.run("garmin")
        assert garmin.paths().count(RENEWAL) == 1


@pytest.mark.parametrize("mfa", [None, MFA_TOKEN])
def test_oauth1_token_is_exchanged_and_kept(
    site: BundledSite, garmin: Garmin, mfa: str | None
) -> None:
    garmin.life, garmin.wants_mfa = 1, mfa is not None
    sign(site, garmin, mfa_token=mfa)
    garmin.live(DAYS[1], totalSteps=9100)
    with site.running() as running:
        for _ in range(2):
            assert running.run("garmin")["status"] == "succeeded"
        assert records(running) == [f"daily:{DAYS[1]}"]
        assert get_state(running, "garmin")["refresh_token"] == OAUTH_TOKEN
    assert garmin.paths().count(EXCHANGE) == 2
    assert garmin.refusals == []


def test_used_refresh_token_requires_a_new_login(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    assert site.direct("garmin", "refresh").response["status"] == "ok"
    done = site.direct("garmin", "refresh")
    assert done.response["retry"] is False
    assert "log in again" in done.response["error"]
    assert garmin.refusals == ["refresh_token"]


@pytest.mark.parametrize(
    "config",
    [
        {"client_id": None},
        {"refresh_token": None},
        {"oauth_token": "x"},
        {"days_back": 0},
        {"days_back": 32},
        {"days_back": "3"},
        {"auth_url": "http://example.org"},
    ],
)
def test_invalid_configuration_is_not_retried(
    site: BundledSite, garmin: Garmin, config: dict[str, Any]
) -> None:
    connect(site, garmin, **config)
    done = site.direct("garmin", "init")
    assert (done.code, done.response["retry"]) == (78, False)
    assert garmin.requests == []


def test_init_without_configuration_succeeds(site: BundledSite) -> None:
    assert site.direct("garmin", "init").response["status"] == "ok"


def test_secrets_are_only_in_configuration_and_state(
    site: BundledSite, garmin: Garmin, capfd: pytest.CaptureFixture[str]
) -> None:
    site.settings["service"]["log_level"] = "debug"
    garmin.life = 1
    connect(site, garmin)
    with site.running() as running:
        running.run("garmin")
        before = len(garmin.requests)
        garmin.next(WEIGHTS, FakeReply(hangs=True))
        held = running.put("garmin")
        until(lambda: len(garmin.requests) == before + 2)
        arguments = process_arguments(site)
        garmin.released.set()
        running.ended(held)
        garmin.next(
            RENEWAL, lambda request: FakeReply({"error": request.form["refresh_token"]}, 400)
        )
        for command in ("poll", "refresh", "health"):
            running.run("garmin", command)
        text = ledger_text(running)
    assert any("garmin/run.py" in line for line in arguments)
    seen = text + "".join(capfd.readouterr()) + "".join(arguments)
    for secret in ("canary-access", "canary-refresh"):
        assert secret not in seen
