"""The plugin `garmin` through a real gateway, against the stand-in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bundled.accounts import DAYS, state_of
from tests.bundled.accounts import connect_garmin as connect
from tests.bundled.accounts import connect_garmin_signing as sign
from tests.bundled.house import BundledSite, emitted, ledger_text, process_arguments
from tests.bundled.standins.garmin import (
    EXCHANGE,
    MFA_TOKEN,
    NAME,
    OAUTH_TOKEN,
    RENEWAL,
    Garmin,
)
from tests.bundled.standins.server import Told
from tests.engine.site import Running
from tests.waiting import until

DAILY = f"/usersummary-service/usersummary/daily/{NAME}"
WEIGHTS = "/weight-service/weight/dateRange"


def records(house: Running) -> list[str]:
    return [event["payload"]["record"] for event in emitted(house, "garmin")]


def test_days_and_weigh_ins_are_told_once_each(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    garmin.live(DAYS[1], totalSteps=9100, restingHeartRate=52, averageStressLevel=-1)
    garmin.live(DAYS[3], totalSteps=12)
    garmin.weigh(1_700_000_001, DAYS[1], 81_250.0, bodyFat=21.3, boneMass=3500)
    with site.running() as house:
        for _ in range(2):
            assert house.run("garmin")["status"] == "succeeded"
        assert records(house) == ["weight:1700000001", f"daily:{DAYS[1]}"]
        weight, day = (event["payload"] for event in emitted(house, "garmin"))
    assert weight["measures"] == {"weight": 81.25, "fat_ratio": 21.3, "bone_mass": 3.5}
    assert weight["measured_at"] == "2023-11-14T22:13:21Z"
    assert day["measures"] == {"steps": 9100, "resting_heart_rate": 52}
    assert day["units"] == {"steps": "steps", "resting_heart_rate": "bpm"}
    assert garmin.refusals == []


def test_a_poll_that_finds_nothing_new_leaves_the_state_alone(
    site: BundledSite, garmin: Garmin
) -> None:
    connect(site, garmin)
    garmin.live(DAYS[1], totalSteps=9100)
    first = site.direct("garmin", "poll").answer
    again = site.direct("garmin", "poll", state=first["state_updates"]).answer
    assert "state_updates" not in again
    assert garmin.paths().count("/userprofile-service/socialProfile") == 1


def test_a_day_that_is_synchronised_late_is_told_again_with_a_new_revision(
    site: BundledSite, garmin: Garmin
) -> None:
    connect(site, garmin)
    garmin.live(DAYS[1], totalSteps=100)
    with site.running() as house:
        house.run("garmin")
        garmin.live(DAYS[1], totalSteps=9100)
        house.run("garmin")
        first, second = emitted(house, "garmin")
    assert first["payload"]["record"] == second["payload"]["record"]
    assert first["dedupe_key"] != second["dedupe_key"]
    assert second["payload"]["measures"] == {"steps": 9100}


def test_today_is_told_where_that_is_wanted(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin, include_today=True)
    garmin.live(DAYS[3], totalSteps=12)
    answer = site.direct("garmin", "poll").answer
    assert [event["payload"]["date"] for event in answer["events"]] == [DAYS[3]]


def test_a_refresh_token_that_rotates_survives_whatever_fails_after_it(
    site: BundledSite, garmin: Garmin
) -> None:
    garmin.life = 1
    connect(site, garmin, poll="4500ms")
    garmin.live(DAYS[1], totalSteps=9100)
    troubles = {
        "/userprofile-service/socialProfile": (Told(status=503), Told({"displayName": None})),
        DAILY: (Told(status=500), Told(body=b"<html>"), Told({"privacyProtected": True})),
        WEIGHTS: (Told(hangs=True), Told(drips=True)),
    }
    with site.running() as house:
        for path, tellings in troubles.items():
            for told in tellings:
                garmin.next(path, told)
                job = house.run("garmin")
                assert job["status"] == "succeeded", (path, told)
                assert "nothing else was done" in job["result"]["result"], (path, told)
                assert state_of(house, "garmin")["refresh_token"] in garmin.refresh
        assert emitted(house, "garmin") == []
        # With so little time a run reads one day, and the next run the next.
        for _ in range(3):
            house.run("garmin")
        assert records(house) == [f"daily:{DAYS[1]}"]
    assert garmin.refusals == []


def test_with_a_good_token_trouble_is_a_failed_job(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    with site.running() as house:
        house.run("garmin")
        garmin.next(DAILY, Told(status=502))
        job = house.run("garmin")
    assert (job["status"], job["last_error"]) == ("dead", "127.0.0.1 answered 502")


def test_a_token_that_ended_early_is_renewed(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    with site.running() as house:
        house.run("garmin")
        garmin.access.clear()
        assert house.run("garmin")["status"] == "succeeded"
    assert garmin.refusals == ["access_token"]


def test_a_busy_garmin_is_left_alone_until_it_says(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    garmin.next(WEIGHTS, Told(status=429, headers={"Retry-After": "1800"}))
    with site.running() as house:
        first = house.run("garmin")
        asked = len(garmin.asked)
        second = house.run("garmin")
        assert "wait 1800 s" in first["result"]["result"]
        assert "were asked to wait" in second["result"]["result"]
        assert len(garmin.asked) == asked
        assert state_of(house, "garmin")["refresh_token"] in garmin.refresh


def test_weigh_ins_that_cannot_be_read_are_passed_over(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    garmin.weigh(1, DAYS[1], 80_000, timestampGMT="noon")
    garmin.weigh(2, DAYS[1], 80_000, timestampGMT=10**18)
    garmin.weigh(3, DAYS[1], -1)
    garmin.weigh(4, DAYS[1], 80_000)
    garmin.weights.append(None)  # type: ignore[arg-type]
    garmin.next(WEIGHTS, Told({"dateWeightList": garmin.weights}))
    answer = site.direct("garmin", "poll").answer
    assert [event["payload"]["record"] for event in answer["events"]] == ["weight:4"]


def test_refresh_stores_new_tokens_without_using_them(site: BundledSite, garmin: Garmin) -> None:
    connect(site, garmin)
    with site.running() as house:
        assert house.run("garmin", "refresh")["status"] == "succeeded"
        assert garmin.paths() == [RENEWAL]
        house.run("garmin")
        assert garmin.paths().count(RENEWAL) == 1


@pytest.mark.parametrize("mfa", [None, MFA_TOKEN])
def test_a_token_that_signs_is_exchanged_and_stays(
    site: BundledSite, garmin: Garmin, mfa: str | None
) -> None:
    garmin.life, garmin.wants_mfa = 1, mfa is not None
    sign(site, garmin, mfa_token=mfa)
    garmin.live(DAYS[1], totalSteps=9100)
    with site.running() as house:
        for _ in range(2):
            assert house.run("garmin")["status"] == "succeeded"
        assert records(house) == [f"daily:{DAYS[1]}"]
        assert state_of(house, "garmin")["refresh_token"] == OAUTH_TOKEN
    assert garmin.paths().count(EXCHANGE) == 2
    assert garmin.refusals == []


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ('f"Basic {basic}"', 'f"Bearer {basic}"', "basic"),
        ('"client_id": client,', "", "client_id"),
        ('"grant_type": "refresh_token"', '"grant_type": "refresh"', "grant_type"),
        ('"refresh_token": refresh_token,', "", "refresh_token"),
        ('f"Bearer {token}"', "token", "access_token"),
        ('self.site.send("GET"', 'self.site.send("POST"', "method"),
        ("calendarDate=day", 'calendarDate="today"', "calendarDate"),
        ("startDate=days[0]", 'startDate="then"', "dates"),
        ('"/userprofile-service/socialProfile"', '"/userprofile-service/profile"', "path"),
    ],
)
def test_a_plugin_that_breaks_a_rule_is_refused(
    site: BundledSite, garmin: Garmin, old: str, new: str, refused: str
) -> None:
    connect(site, garmin)
    site.mutate("garmin/run.py", old, new)
    assert "events" not in site.direct("garmin", "poll").answer
    assert refused in garmin.refusals


@pytest.mark.parametrize(
    ("file", "old", "new", "refused"),
    [
        ("oauth1.py", '"OAuth " +', '"OAuth2 " +', "scheme"),
        ("oauth1.py", '"oauth_version": "1.0",', "", "oauth_version"),
        ("oauth1.py", "HMAC-SHA1\",\n", "PLAINTEXT\",\n", "oauth_signature_method"),
        ("oauth1.py", '"oauth_token": token[0],', "", "oauth_token"),
        ("oauth1.py", '"oauth_consumer_key": consumer[0]', '"oauth_consumer_key": "x"',
         "oauth_consumer_key"),
        ("oauth1.py", "str(int(now))", "str(int(now) - 4000)", "timestamp"),
        ("oauth1.py", "secrets.token_hex(16)", '""', "nonce"),
        ("oauth1.py", "pairs = sorted(", "pairs = list(", "signature"),
        ("oauth1.py", "{**oauth, **form}", "oauth", "signature"),
        ("oauth1.py", "&{_quoted(token[1])}", "&", "signature"),
        ("oauth1.py", "hashlib.sha1", "hashlib.sha256", "signature"),
        ("run.py", 'form = {"mfa_token": mfa} if mfa else {}', "form: dict[str, str] = {}",
         "mfa_token"),
    ],
)  # fmt: skip
def test_an_exchange_that_breaks_a_rule_is_refused(
    site: BundledSite, garmin: Garmin, file: str, old: str, new: str, refused: str
) -> None:
    garmin.wants_mfa = True
    sign(site, garmin, mfa_token=MFA_TOKEN)
    site.mutate(f"garmin/{file}", old, new)
    done = site.direct("garmin", "poll")
    assert "no longer accepts these tokens" in done.answer["error"]
    assert garmin.refusals == [refused]


def test_a_nonce_is_used_once(site: BundledSite, garmin: Garmin) -> None:
    sign(site, garmin)
    site.mutate("garmin/oauth1.py", "secrets.token_hex(16)", '"1"')
    assert site.direct("garmin", "refresh").answer["status"] == "ok"
    assert site.direct("garmin", "refresh").answer["retry"] is False
    assert garmin.refusals == ["nonce"]


def test_a_spent_refresh_token_is_refused_and_a_person_is_asked_for(
    site: BundledSite, garmin: Garmin
) -> None:
    connect(site, garmin)
    assert site.direct("garmin", "refresh").answer["status"] == "ok"
    done = site.direct("garmin", "refresh")
    assert done.answer["retry"] is False
    assert "log in anew" in done.answer["error"]
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
def test_a_wrong_configuration_is_a_matter_for_the_operator(
    site: BundledSite, garmin: Garmin, config: dict[str, Any]
) -> None:
    connect(site, garmin, **config)
    done = site.direct("garmin", "init")
    assert (done.code, done.answer["retry"]) == (78, False)
    assert garmin.asked == []


def test_without_any_configuration_the_start_is_quiet(site: BundledSite) -> None:
    assert site.direct("garmin", "init").answer["status"] == "ok"


def test_no_secret_leaves_configuration_and_state(
    site: BundledSite, garmin: Garmin, capfd: pytest.CaptureFixture[str]
) -> None:
    site.settings["service"]["log_level"] = "debug"
    garmin.life = 1
    connect(site, garmin)
    with site.running() as house:
        house.run("garmin")
        before = len(garmin.asked)
        garmin.next(WEIGHTS, Told(hangs=True))
        held = house.put("garmin")
        until(lambda: len(garmin.asked) == before + 2)
        arguments = process_arguments(site)
        garmin.letting_go.set()
        house.ended(held)
        garmin.next(RENEWAL, lambda asked: Told({"error": asked.form["refresh_token"]}, 400))
        for command in ("poll", "refresh", "health"):
            house.run("garmin", command)
        shown = ledger_text(house)
    assert any("garmin/run.py" in line for line in arguments)
    seen = shown + "".join(capfd.readouterr()) + "".join(arguments)
    for secret in ("canary-access", "canary-refresh"):
        assert secret not in seen
