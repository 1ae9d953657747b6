"""The plugin `withings` with a fake of Withings: readings and errors."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.bundled.accounts import connect_withings as connect
from tests.bundled.accounts import get_state
from tests.bundled.bundled_site import BundledSite, ledger_text, list_events, process_arguments
from tests.bundled.fakes.server import FakeReply
from tests.bundled.fakes.withings import CLIENT_SECRET, Withings
from tests.engine.site import Running
from tests.waiting import until

NOW = int(time.time())
MORNING = NOW - 86_400
BUSY = {"status": 601, "body": {}, "error": "Too Many Requests"}


def records(running: Running) -> list[str]:
    return [event["payload"]["record"] for event in list_events(running, "withings")]


def get_response(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["result"]
    return found


def test_reading_is_emitted_once(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    measures = [
        {"value": 81_250, "type": 1, "unit": -3},
        {"value": 213, "type": 6, "unit": -1},
        {"value": 12, "type": 4711, "unit": 0},
    ]
    withings.weigh(7, at=MORNING, measures=measures)
    with site.running() as running:
        for _ in range(2):
            assert running.run("withings")["status"] == "succeeded"
        events = list_events(running, "withings")
        state = get_state(running, "withings")
    assert len(events) == 1
    payload = events[0]["payload"]
    assert events[0]["type"] == "new_health_data"
    assert events[0]["dedupe_key"] == f"withings:7:{MORNING}"
    assert payload["measures"] == {"weight": 81.25, "fat_ratio": 21.3}
    assert payload["units"] == {"weight": "kg", "fat_ratio": "%"}
    assert payload["device"] == "Body+"
    assert state["latest"]["weight"] == {"value": 81.25, "measured_at": payload["measured_at"]}
    assert withings.refusals == []


def test_poll_without_news_does_not_change_the_state(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(7, at=MORNING)
    with site.running() as running:
        running.run("withings")
        again = running.run("withings")
    assert "state_updates" not in get_response(again)


def test_all_pages_are_fetched_and_readings_are_ordered(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings)
    for index in range(8):
        withings.weigh(index, at=MORNING + index)
    with site.running() as running:
        running.run("withings")
        assert records(running) == [str(index) for index in range(8)]
    assert [
        request.form.get("offset") for request in withings.requests if request.path == "/measure"
    ] == [
        "0",
        "3",
        "6",
    ]


def test_sync_continues_in_the_next_run(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    site.mutate("withings/run.py", "MAX_READINGS = 1000", "MAX_READINGS = 3")
    for index in range(8):
        withings.weigh(index, at=MORNING + index)
    with site.running() as running:
        for _ in range(4):
            assert running.run("withings")["status"] == "succeeded"
        assert sorted(records(running)) == [str(index) for index in range(8)]
        assert "offset" not in get_state(running, "withings")["cursor"]


def test_long_page_is_processed_in_parts(site: BundledSite, withings: Withings) -> None:
    withings.page = 100
    connect(site, withings)
    site.mutate("withings/run.py", "MAX_READINGS = 1000", "MAX_READINGS = 3")
    for index in range(8):
        withings.weigh(index, at=MORNING + index)
    state: dict[str, Any] = {}
    records: list[str] = []
    for _ in range(4):
        response = site.direct("withings", "poll", state=state).response
        records += [event["payload"]["record"] for event in response.get("events", [])]
        state = response.get("state_updates", state)
    assert sorted(records) == [str(index) for index in range(8)]


def test_changed_reading_is_emitted_again(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.weigh(2, at=MORNING + 5)
    with site.running() as running:
        running.run("withings")
        withings.weigh(1, at=MORNING, modified=MORNING + 60)
        withings.weigh(3, at=MORNING + 60)
        running.run("withings")
        # In the newest second of the previous poll, which the cursor alone would miss.
        withings.weigh(4, at=MORNING + 60)
        running.run("withings")
        assert records(running) == ["1", "2", "1", "3", "4"]


def test_state_changes_are_stored_as_facts(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    with site.running() as running:
        for command in ("poll", "poll", "refresh"):
            running.run("withings", command)
        facts = running.gateway.ledger.read(
            lambda tx: tx.dicts("facts_of", plugin="withings", before=99, limit=9)
        )
        state = get_state(running, "withings")
    assert [fact["fact_type"] for fact in facts] == ["withings.snapshot"] * 2
    assert json.loads(max(facts, key=lambda fact: fact["seq"])["fact_json"]) == state
    assert state["latest"]["weight"]["value"] == 81.25


def test_two_accounts_as_two_instances(site: BundledSite, withings: Withings) -> None:
    withings.weigh(1, at=MORNING)
    connect(site, withings)
    config = site.settings["plugins"]["withings"]["config"]
    site.use("second", {**config, "refresh_token": withings.issue().refresh}, uses="withings")
    with site.running() as running:
        for name in ("withings", "second"):
            running.run(name)
        keys = [list_events(running, name)[0]["dedupe_key"] for name in ("withings", "second")]
    assert keys == [f"withings:1:{MORNING}", f"second:1:{MORNING}"]


@pytest.mark.parametrize(
    "limit",
    [
        FakeReply(BUSY, headers={"Retry-After": "3000"}),
        FakeReply(status=429, headers={"Retry-After": "3000"}),
    ],
    ids=["601", "429"],
)
def test_rate_limit_of_withings_is_respected(
    site: BundledSite, withings: Withings, limit: FakeReply
) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.next("/measure", limit)
    with site.running() as running:
        first = running.run("withings")
        count = len(withings.requests)
        second = running.run("withings")
        assert first["status"] == second["status"] == "succeeded"
        assert "3000 s" in get_response(first)["result"]
        assert "rate limited by the provider" in get_response(second)["result"]
        assert len(withings.requests) == count
        assert 2900 < get_state(running, "withings")["retry_at"] - time.time() <= 3001
        assert get_state(running, "withings")["refresh_token"] == withings.tokens[-1].refresh


def test_short_retry_after_is_waited_for(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    withings.next("/measure", FakeReply(status=429, headers={"Retry-After": "1"}))
    with site.running() as running:
        running.run("withings")
        assert records(running) == ["1"]
    assert withings.paths() == ["/v2/oauth2", "/measure", "/measure"]


def test_invalid_groups_are_skipped_and_counted(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING, measures=[{"type": 1}])
    withings.weigh(2, at=MORNING, model=17, measures=[{"type": 1, "value": 9, "unit": 99}])
    withings.weigh(3, at=MORNING)
    with site.running() as running:
        job = running.run("withings")
        assert records(running) == ["3"]
    assert get_response(job)["logs"][0]["message"] == (
        "1 groups of measures are not valid and were skipped"
    )


def test_repeated_offset_fails_the_job(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    body = {"updatetime": NOW, "timezone": "UTC", "measuregrps": [], "more": 1, "offset": 0}
    with site.running() as running:
        running.run("withings")
        withings.next("/measure", FakeReply({"status": 0, "body": body}))
        job = running.run("withings")
    assert job["status"] == "dead"
    assert "without its offset" in job["last_error"]


def test_health_sends_no_request(site: BundledSite, withings: Withings) -> None:
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    with site.running() as running:
        running.run("withings")
        count = len(withings.requests)
        job = running.run("withings", "health")
    assert get_response(job)["result"].startswith("authorized; newest reading: 20")
    assert len(withings.requests) == count


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
def test_invalid_configuration_is_not_retried(
    site: BundledSite, withings: Withings, key: str, value: Any
) -> None:
    connect(site, withings, **{key: value})
    done = site.direct("withings", "init")
    assert (done.code, done.response["retry"]) == (78, False)
    assert withings.requests == []


def test_invalid_configuration_is_reported_by_init(site: BundledSite, withings: Withings) -> None:
    connect(site, withings, measures=["wieght"])
    with site.running() as running:
        failed = running.ended(running.notice("job.failed").job_id or "")
    assert (failed["command"], failed["status"]) == ("init", "failed")
    assert "config.measures must be a list of: weight" in failed["last_error"]


def test_secrets_are_only_in_configuration_and_state(
    site: BundledSite, withings: Withings, capfd: pytest.CaptureFixture[str]
) -> None:
    site.settings["service"]["log_level"] = "debug"
    withings.life = 1
    connect(site, withings)
    withings.weigh(1, at=MORNING)
    with site.running() as running:
        running.run("withings")
        before = len(withings.requests)
        withings.next("/measure", FakeReply(hangs=True))
        held = running.put("withings")
        until(lambda: len(withings.requests) == before + 2)
        arguments = process_arguments(site)
        withings.released.set()
        running.ended(held)
        withings.next("/v2/oauth2", FakeReply({"status": 503, "error": CLIENT_SECRET}))
        for command in ("poll", "refresh", "authorize", "health", "disconnect"):
            running.run("withings", command)
        text = ledger_text(running)
    assert any("withings/run.py" in line for line in arguments)
    seen = text + "".join(capfd.readouterr()) + "".join(arguments)
    for secret in ("canary-access", "canary-refresh", CLIENT_SECRET):
        assert secret not in seen
