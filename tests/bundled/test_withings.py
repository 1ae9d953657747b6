"""The plugin `withings` through a real gateway: what it reads, and what it tells."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.bundled.accounts import connect_withings as connect
from tests.bundled.accounts import state_of
from tests.bundled.house import BundledSite, emitted, ledger_text, process_arguments
from tests.bundled.standins.server import Told
from tests.bundled.standins.withings import CLIENT_SECRET, Withings
from tests.engine.site import Running
from tests.waiting import until

NOW = int(time.time())
MORNING = NOW - 86_400
BUSY = {"status": 601, "body": {}, "error": "Too Many Requests"}


def records(house: Running) -> list[str]:
    return [event["payload"]["record"] for event in emitted(house, "withings")]


def answer(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["result"]
    return found


def test_a_reading_is_emitted_once_in_the_common_shape(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    measures = [
        {"value": 81_250, "type": 1, "unit": -3},
        {"value": 213, "type": 6, "unit": -1},
        {"value": 12, "type": 4711, "unit": 0},
    ]
    withings.weigh(7, at=MORNING, measures=measures)
    with site.running() as house:
        for _ in range(2):
            assert house.run("withings")["status"] == "succeeded"
        events = emitted(house, "withings")
        state = state_of(house, "withings")
    assert len(events) == 1
    payload = events[0]["payload"]
    assert events[0]["type"] == "new_health_data"
    assert events[0]["dedupe_key"] == f"withings:7:{MORNING}"
    assert payload["measures"] == {"weight": 81.25, "fat_ratio": 21.3}
    assert payload["units"] == {"weight": "kg", "fat_ratio": "%"}
    assert payload["device"] == "Body+"
    assert state["latest"]["weight"] == {"value": 81.25, "measured_at": payload["measured_at"]}
    assert withings.refusals == []


def test_a_poll_that_finds_nothing_new_leaves_the_state_alone(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    withings.weigh(7, at=MORNING)
    with site.running() as house:
        house.run("withings")
        again = house.run("withings")
    assert "state_updates" not in answer(again)


def test_every_page_is_fetched_and_readings_come_in_order(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    for index in range(8):
        withings.weigh(index, at=MORNING + index)
    with site.running() as house:
        house.run("withings")
        assert records(house) == [str(index) for index in range(8)]
    assert [asked.form.get("offset") for asked in withings.asked if asked.path == "/measure"] == [
        "0",
        "3",
        "6",
    ]


def test_a_pass_that_is_too_long_for_one_run_goes_on_in_the_next(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    site.mutate("withings/run.py", "MOST_READINGS = 1000", "MOST_READINGS = 3")
    for index in range(8):
        withings.weigh(index, at=MORNING + index)
    with site.running() as house:
        for _ in range(4):
            assert house.run("withings")["status"] == "succeeded"
        assert sorted(records(house)) == [str(index) for index in range(8)]
        assert "offset" not in state_of(house, "withings")["cursor"]


def test_a_page_that_is_too_long_for_one_run_is_taken_in_parts(
    site: BundledSite, withings: Withings
) -> None:
    withings.page = 100
    connect(site, withings)
    site.mutate("withings/run.py", "MOST_READINGS = 1000", "MOST_READINGS = 3")
    for index in range(8):
        withings.weigh(index, at=MORNING + index)
    state: dict[str, Any] = {}
    records: list[str] = []
    for _ in range(4):
        answer = site.direct("withings", "poll", state=state).answer
        records += [event["payload"]["record"] for event in answer.get("events", [])]
        state = answer.get("state_updates", state)
    assert sorted(records) == [str(index) for index in range(8)]


def test_a_reading_that_is_changed_is_emitted_again_and_a_new_one_alone(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.weigh(2, at=MORNING + 5)
    with site.running() as house:
        house.run("withings")
        withings.weigh(1, at=MORNING, modified=MORNING + 60)
        withings.weigh(3, at=MORNING + 60)
        house.run("withings")
        # In the second that the last poll saw last: the cursor alone would miss it.
        withings.weigh(4, at=MORNING + 60)
        house.run("withings")
        assert records(house) == ["1", "2", "1", "3", "4"]


def test_every_change_of_the_state_is_kept_as_a_fact(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    with site.running() as house:
        for command in ("poll", "poll", "refresh"):
            house.run("withings", command)
        facts = house.gateway.ledger.read(
            lambda tx: tx.dicts("facts_of", plugin="withings", before=99, limit=9)
        )
        state = state_of(house, "withings")
    assert [fact["fact_type"] for fact in facts] == ["withings.snapshot"] * 2
    assert json.loads(max(facts, key=lambda fact: fact["seq"])["fact_json"]) == state
    assert state["latest"]["weight"]["value"] == 81.25


def test_two_accounts_are_two_instances(site: BundledSite, withings: Withings) -> None:
    withings.weigh(1, at=MORNING)
    connect(site, withings)
    config = site.settings["plugins"]["withings"]["config"]
    site.use("hers", {**config, "refresh_token": withings.issue().refresh}, uses="withings")
    with site.running() as house:
        for name in ("withings", "hers"):
            house.run(name)
        keys = [emitted(house, name)[0]["dedupe_key"] for name in ("withings", "hers")]
    assert keys == [f"withings:1:{MORNING}", f"hers:1:{MORNING}"]


@pytest.mark.parametrize(
    "limit",
    [
        Told(BUSY, headers={"Retry-After": "3000"}),
        Told(status=429, headers={"Retry-After": "3000"}),
    ],
    ids=["601", "429"],
)
def test_a_provider_that_is_busy_is_left_alone_until_it_says(
    site: BundledSite, withings: Withings, limit: Told
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.next("/measure", limit)
    with site.running() as house:
        first = house.run("withings")
        asked = len(withings.asked)
        second = house.run("withings")
        assert first["status"] == second["status"] == "succeeded"
        assert "3000 s" in answer(first)["result"]
        assert "asked to wait" in answer(second)["result"]
        assert len(withings.asked) == asked
        assert 2900 < state_of(house, "withings")["retry_at"] - time.time() <= 3001
        assert state_of(house, "withings")["refresh_token"] == withings.tokens[-1].refresh


def test_a_short_wait_is_waited_out(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.next("/measure", Told(status=429, headers={"Retry-After": "1"}))
    with site.running() as house:
        house.run("withings")
        assert records(house) == ["1"]
    assert withings.paths() == ["/v2/oauth2", "/measure", "/measure"]


def test_groups_that_cannot_be_read_are_passed_over_and_counted(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING, measures=[{"type": 1}])
    withings.weigh(2, at=MORNING, model=17, measures=[{"type": 1, "value": 9, "unit": 99}])
    withings.weigh(3, at=MORNING)
    with site.running() as house:
        job = house.run("withings")
        assert records(house) == ["3"]
    assert answer(job)["logs"][0]["message"] == "groups of measures that could not be read: 1"


def test_pages_that_do_not_end_are_no_endless_loop(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    body = {"updatetime": NOW, "timezone": "UTC", "measuregrps": [], "more": 1, "offset": 0}
    with site.running() as house:
        house.run("withings")
        withings.next("/measure", Told({"status": 0, "body": body}))
        job = house.run("withings")
    assert job["status"] == "dead"
    assert "not where" in job["last_error"]


def test_health_tells_without_asking(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    with site.running() as house:
        house.run("withings")
        asked = len(withings.asked)
        job = house.run("withings", "health")
    assert answer(job)["result"].startswith("authorized; the newest reading is of 20")
    assert len(withings.asked) == asked


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("measures", ["wieght"]),
        ("since_days", "many"),
        ("base_url", "http://example.org"),
        ("base_url", "file:///etc/passwd"),
        ("client_secret", 7),
    ],
)
def test_a_wrong_configuration_is_a_matter_for_the_operator(
    site: BundledSite, withings: Withings, key: str, value: Any
) -> None:
    connect(site, withings, **{key: value})
    done = site.direct("withings", "init")
    assert (done.code, done.answer["retry"]) == (78, False)
    assert withings.asked == []


def test_a_wrong_configuration_is_told_at_the_start(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, measures=["wieght"])
    with site.running() as house:
        failed = house.ended(house.notice("job.failed").job_id or "")
    assert (failed["command"], failed["status"]) == ("init", "failed")
    assert "config.measures must be a list of: weight" in failed["last_error"]


def test_no_secret_leaves_configuration_and_state(
    site: BundledSite, withings: Withings, capfd: pytest.CaptureFixture[str]
) -> None:
    site.settings["service"]["log_level"] = "debug"
    withings.life = 1
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    with site.running() as house:
        house.run("withings")
        before = len(withings.asked)
        withings.next("/measure", Told(hangs=True))
        held = house.put("withings")
        until(lambda: len(withings.asked) == before + 2)
        arguments = process_arguments(site)
        withings.letting_go.set()
        house.ended(held)
        withings.next("/v2/oauth2", Told({"status": 503, "error": CLIENT_SECRET}))
        for command in ("poll", "refresh", "authorize", "health", "disconnect"):
            house.run("withings", command)
        shown = ledger_text(house)
    assert any("withings/run.py" in line for line in arguments)
    seen = shown + "".join(capfd.readouterr()) + "".join(arguments)
    for secret in ("canary-access", "canary-refresh", CLIENT_SECRET):
        assert secret not in seen
