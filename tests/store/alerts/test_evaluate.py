"""The evaluation of alert rules is one transaction, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from ductile.clock import Ids, to_text
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.disk_limit import DiskLimit
from ductile.core.alerts.outage import Outage
from ductile.core.alerts.rules import AlertRule, Grouping
from ductile.core.alerts.state_machine import AlertPolicy, AlertState
from ductile.core.flow.pauses import Pause, PauseKind
from ductile.core.jobs.judge import judge
from ductile.core.schedules.breaker import BreakerPolicy
from ductile.core.schedules.decide import Cron, Every, Schedule
from ductile.model import CANCELLED_IN_QUEUE, JobStatus, Notice
from ductile.operations.schedules import set_paused
from ductile.store import notices, schedules
from ductile.store.access import webhook_signatures
from ductile.store.access.webhook_signatures import SignedRequest
from ductile.store.alerts import evaluate, rows
from ductile.store.alerts.evaluate import AlertInputs, SentAlert
from ductile.store.alerts.levels import Watched
from ductile.store.backup.pg_transfer import replace_ledger
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.flow.pauses import end_due_pauses, store_pause
from ductile.store.flow.run_limits import describe_newer
from ductile.store.jobs import close
from ductile.store.jobs.scopes import describe_failure
from ductile.store.jobs.settle import settle
from ductile.store.schedules import FirePolicy
from ductile.store.tx_config import TxConfig
from tests.conftest import CountingEntropy, FakeClock
from tests.postgres import Server
from tests.store.conftest import execute
from tests.store.jobs.harness import BAD, OK, RULES, JobQueue

TX_CONFIG = TxConfig(
    86_400.0, attempts={"work": 1, "notify": 1, "echo": 1}, breakers={"work": BreakerPolicy(1, 60)}
)
UTC_ZONE = ZoneInfo("UTC")


def rule(*on: Condition, name: str = "broken", **more: Any) -> AlertRule:
    policy = AlertPolicy(
        **{key: more.pop(key) for key in ("after", "lasts", "wait", "repeat") if key in more}
    )
    return AlertRule(name, frozenset(on), "notify", policy, **more)


class Alerting(JobQueue):
    """Jobs that fail, and the evaluation of rules."""

    def __init__(self, ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> None:
        super().__init__(ledger, clock, entropy)
        self.rules: tuple[AlertRule, ...] = ()
        self.watched = Watched(plugins=frozenset({"work", "notify"}))

    def watch(self, *rules: AlertRule) -> None:
        """Put rules in force."""
        self.rules = rules
        self.evaluate()

    def evaluate(
        self, seconds: float = 1.0, *, is_stable: bool = True, **more: Any
    ) -> list[SentAlert]:
        self.clock.advance(seconds)
        inputs = AlertInputs(self.rules, self.watched, "home", self.clock.now(), **more)
        base_id = self.entropy.uuid()
        done = self.ledger.write(lambda tx: evaluate.evaluate(tx, inputs, TX_CONFIG, base_id))
        assert done is not None
        if is_stable and not done[0].has_more:
            assert not self.ledger.read(lambda tx: evaluate.plan(tx, inputs)), "nothing is left"
        return done[1]

    def run(self, plugin: str = "work", *, ok: bool = False, **more: Any) -> str:
        self.clock.advance(0.1)
        job_id = self.put(plugin, **more).job_id
        while (claimed := self.must_take()).job.id != job_id:
            self.end(claimed)  # a notification job
        verdict = judge(claimed.job, OK if ok else BAD, RULES, self.clock.now(), 0.5)
        if not ok:
            verdict = replace(verdict, path=(JobStatus.FAILED, JobStatus.DEAD), retry_at=None)
        base_id = self.entropy.uuid()
        self.ledger.write(lambda tx: settle(tx, verdict, TX_CONFIG, base_id))
        return claimed.job.id

    def messages(self) -> list[dict[str, Any]]:
        """The payloads of the notification jobs, in order."""
        found = self.ledger.read(
            lambda tx: tx.dicts("notifications_of_rule", rule="broken", limit=99)
        )
        jobs: list[Any] = [self.job(str(row["job_id"])) for row in reversed(found)]
        assert all(job["submitted_by"] == "alert" and job["command"] == "handle" for job in jobs)
        return [job["payload"]["payload"] for job in jobs]

    def alert(self, group: str = "plugin:work") -> rows.AlertRow:
        return self.ledger.read(lambda tx: rows.load_alert(tx, "broken", group))


@pytest.fixture
def alerting(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Alerting:
    return Alerting(ledger, clock, entropy)


def test_dead_job_sends_one_message_with_subject_time_and_reason(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    begun = alerting.clock.now()
    job_id = alerting.run()
    [sent] = alerting.evaluate()
    assert (sent.rule, sent.group, sent.news) == ("broken", "plugin:work", "firing")
    assert alerting.evaluate() == []
    [payload] = alerting.messages()
    assert payload["first_error"] == "no"
    assert payload["count"] == 1
    assert payload["since"] > to_text(begun)
    assert payload["commands"] == [f"ductile job why {job_id}", "ductile alert show broken"]
    for part in (
        "plugin work",
        "First error: no",
        f"ductile job why {job_id}",
        "failures: 1",
        "UTC",
    ):
        assert part in payload["message"]


def test_success_of_the_same_command_resolves_with_the_duration(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    alerting.run()
    alerting.evaluate()
    alerting.run(command="handle", ok=True)
    assert alerting.evaluate() == []
    alerting.clock.advance(3600)
    alerting.run(ok=True)
    [sent] = alerting.evaluate()
    assert sent.news == "resolved"
    assert "for 1 h" in alerting.messages()[-1]["message"]
    assert alerting.alert().alert.state is AlertState.OK


def test_five_hundred_dead_jobs_make_one_message(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD, wait=30.0))
    for number in range(500):
        payload = {
            "job_id": f"j{number}",
            "plugin": "work",
            "command": "poll",
            "error": f"e{number}",
        }
        now = alerting.clock.now()
        alerting.ledger.write(
            lambda tx, p=payload, n=now: notices.post(
                tx, Notice("jobs", "job.dead", p), n, job_id=p["job_id"]
            )
        )
        if number % 100 == 0:
            assert alerting.evaluate(0.1) == []
    assert alerting.evaluate(5) == []
    assert len(alerting.evaluate(31)) == 1
    assert alerting.evaluate(31) == []
    [payload] = alerting.messages()
    assert (payload["count"], payload["first_error"], payload["last_error"]) == (500, "e0", "e499")


def test_after_counts_failures_in_a_row(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD, after=3))
    for ok in (False, False, True, False, False):
        alerting.run(ok=ok)
    assert alerting.evaluate() == []
    alerting.run()
    assert [sent.news for sent in alerting.evaluate()] == ["firing"]
    assert alerting.messages()[0]["count"] == 3


def test_message_leads_to_the_screen_that_shows_it(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD, name="broken"))
    job_id = alerting.run()
    alerting.evaluate()
    alerting.run(ok=True)
    alerting.evaluate(dashboard="https://home.example/ui/")
    alerting.evaluate(3600, dashboard="https://home.example/ui/")
    firing, resolved = (one["url"] for one in alerting.messages())
    assert (firing, resolved) == (None, f"https://home.example/ui/#/jobs/{job_id}")


def test_plugin_that_reports_the_text_of_a_cancellation_raises_an_alert(
    alerting: Alerting,
) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    stdout = b'{"status": "error", "error": "cancelled", "retry": false}'
    alerting.put("work")
    alerting.end(alerting.must_take(), replace(BAD, stdout=stdout))
    assert [sent.news for sent in alerting.evaluate()] == ["firing"]


@pytest.mark.parametrize("reason", [CANCELLED_IN_QUEUE, describe_newer("r7")])
def test_cancelled_jobs_and_alert_jobs_raise_no_alert(alerting: Alerting, reason: str) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    alerting.put("work")
    claimed = alerting.must_take()
    queued = alerting.put("work").job_id
    job = replace(claimed.job, id=queued, status=JobStatus.QUEUED)
    now, ids = alerting.clock.now(), Ids(alerting.entropy.uuid())
    alerting.ledger.write(
        lambda tx: close.end_queued(tx, job, JobStatus.DEAD, reason, now, TX_CONFIG, ids)
    )
    alerting.end(claimed)
    job_id = alerting.run("notify")
    execute(alerting.ledger, f"UPDATE job_queue SET submitted_by = 'alert' WHERE id = '{job_id}'")
    child = alerting.run("work")
    execute(
        alerting.ledger,
        f"UPDATE job_queue SET parent_job_id = '{job_id}' WHERE id = '{child}'",
    )
    assert alerting.evaluate() == []


def put_in_run(alerting: Alerting, job_id: str, pipeline: str, status: str) -> None:
    execute(
        alerting.ledger,
        "INSERT INTO scopes (id, pipeline, status, created_at) "
        f"VALUES ('run-{pipeline}', '{pipeline}', '{status}', '2026-01-01T00:00:00Z')",
    )
    execute(
        alerting.ledger, f"UPDATE job_queue SET scope_id = 'run-{pipeline}' WHERE id = '{job_id}'"
    )


def fail_run(alerting: Alerting, pipeline: str, error: str) -> None:
    execute(alerting.ledger, f"UPDATE scopes SET status = 'failed' WHERE id = 'run-{pipeline}'")
    reason = describe_failure("0a-1", "ask", "dead", error, None)
    notice = Notice("pipelines", "pipeline.failed", {"pipeline": pipeline, "reason": reason})
    now = alerting.clock.now()
    alerting.ledger.write(lambda tx: notices.post(tx, notice, now, job_id=f"run-{pipeline}"))


def test_failed_run_and_its_job_are_one_problem(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD, Condition.RUN_FAILED, wait=0.0))
    # The other branch of a split still runs.
    put_in_run(alerting, alerting.run(), "split", "open")
    assert [sent.group for sent in alerting.evaluate()] == ["pipeline:split"]
    fail_run(alerting, "split", "no")
    assert alerting.evaluate() == []
    [cause] = alerting.alert("pipeline:split").causes.items
    assert (cause.condition, cause.count) == (Condition.RUN_FAILED, 1)
    # Both are known at once.
    put_in_run(alerting, alerting.run(), "plain", "open")
    fail_run(alerting, "plain", "no")
    assert [sent.group for sent in alerting.evaluate()] == ["pipeline:plain"]
    assert alerting.messages()[-1]["conditions"] == ["run.failed"]
    put_in_run(alerting, alerting.run(), "joined", "open")
    execute(alerting.ledger, "UPDATE scopes SET join_always = 1 WHERE id = 'run-joined'")
    assert [sent.group for sent in alerting.evaluate()] == ["plugin:work"]
    # An operator who cancels a run knows it.
    put_in_run(alerting, alerting.run(ok=True), "cancelled", "open")
    alerting.evaluate()
    fail_run(alerting, "cancelled", CANCELLED_IN_QUEUE)
    assert alerting.evaluate() == []


def test_restart_continues_with_the_events_since_the_last_evaluation(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy
) -> None:
    first = Alerting(open_ledger(), clock, entropy)
    first.watch(rule(Condition.JOB_DEAD))
    first.run()
    second = Alerting(open_ledger(), clock, entropy)
    second.rules = first.rules
    assert len(second.evaluate()) == 1
    assert first.evaluate() == []


def test_new_rule_ignores_what_happened_before_it(alerting: Alerting) -> None:
    alerting.run()
    alerting.watch(rule(Condition.JOB_DEAD))
    assert alerting.evaluate() == []


def test_rule_that_is_removed_for_long_is_forgotten(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    alerting.run()
    alerting.evaluate()
    removed, alerting.rules = alerting.rules, ()
    alerting.evaluate(60)
    assert alerting.alert().alert.state is AlertState.FIRING
    alerting.evaluate(3601)
    assert alerting.alert().alert.number == 0
    alerting.run()
    alerting.rules = removed
    alerting.evaluate()
    assert alerting.evaluate() == []


def test_groups_and_only(alerting: Alerting) -> None:
    alerting.watch(
        rule(Condition.JOB_DEAD, name="broken", grouping=Grouping.NONE),
        rule(Condition.JOB_DEAD, name="some", only=("ec*",)),
    )
    alerting.run("work")
    alerting.run("echo")
    sent = alerting.evaluate()
    assert [(one.rule, one.group) for one in sent] == [("broken", "all"), ("some", "plugin:echo")]


def test_second_message_with_one_number_is_refused(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    alerting.run()
    alerting.evaluate()
    row = alerting.alert()
    with pytest.raises(rows.AlertConflict):
        alerting.ledger.write(
            lambda tx: rows.store_alert(tx, row, row.alert.number - 1, alerting.clock.now())
        )
    with pytest.raises(Exception, match=r"(?i)unique"):
        execute(
            alerting.ledger,
            "INSERT INTO alert_notifications SELECT * FROM alert_notifications",
        )


def test_open_breaker_is_reported_until_it_closes(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.BREAKER_OPEN))
    now = to_text(alerting.clock.now())
    execute(
        alerting.ledger,
        "INSERT INTO circuit_breakers (plugin, command, state, failure_count, opened_at, "
        "updated_at) "
        f"VALUES ('work', 'poll', 'open', 3, '{now}', '{now}')",
    )
    assert [one.news for one in alerting.evaluate()] == ["firing"]
    assert "3 failures in a row" in alerting.messages()[0]["message"]
    execute(alerting.ledger, "UPDATE circuit_breakers SET state = 'closed'")
    assert alerting.evaluate(with_levels=False) == []
    assert [one.news for one in alerting.evaluate()] == ["resolved"]


def test_breaker_that_opened_and_closed_between_evaluations_is_reported(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.BREAKER_OPEN))
    fields = {"plugin": "work", "command": "poll", "failure_count": 3}
    now = alerting.clock.now()
    alerting.ledger.write(
        lambda tx: notices.post(tx, Notice("breakers", "breaker.open", fields), now)
    )
    assert [one.news for one in alerting.evaluate(is_stable=False)] == ["firing"]
    assert [one.news for one in alerting.evaluate()] == ["resolved"]


NIGHTLY = Schedule("work", "nightly", Cron("0 2 * * *"), UTC_ZONE)


def see(alerting: Alerting, schedule: Schedule) -> None:
    now = alerting.clock.now()
    alerting.ledger.write(lambda tx: schedules.ensure_entry(tx, schedule, now, now))
    alerting.watched = replace(alerting.watched, schedules=(schedule,))


def fire(alerting: Alerting, schedule: Schedule, *, healthy: bool = True) -> None:
    now, base_id = alerting.clock.now(), alerting.entropy.uuid()
    policy = FirePolicy(max_outstanding=1, healthy=healthy)
    alerting.ledger.write(
        lambda tx: schedules.fire_due(
            tx, schedule, policy, TX_CONFIG, boot=now, now=now, base_id=base_id
        )
    )


def test_downtime_over_an_occurrence_is_missed_until_the_next_fire(alerting: Alerting) -> None:
    see(alerting, NIGHTLY)
    alerting.watch(rule(Condition.SCHEDULE_MISSED))
    alerting.clock.advance(20 * 3600)
    fire(alerting, NIGHTLY)
    [sent] = alerting.evaluate()
    assert (sent.group, sent.news) == ("schedule:work/nightly", "firing")
    assert "2026-02-09T02:00:00" in alerting.messages()[0]["first_error"]
    assert "ductile schedule explain work/nightly" in alerting.messages()[0]["message"]
    alerting.clock.moment = alerting.clock.moment.replace(day=10, hour=2, minute=0, second=1)
    fire(alerting, NIGHTLY)
    assert [one.news for one in alerting.evaluate()] == ["resolved"]


def test_paused_and_breaker_held_occurrences_are_not_missed(alerting: Alerting) -> None:
    see(alerting, NIGHTLY)
    alerting.watch(rule(Condition.SCHEDULE_MISSED, Condition.SCHEDULE_SILENT, lasts=3600.0))
    alerting.ledger.write(lambda tx: schedules.set_paused(tx, "work", "nightly", paused=True))
    alerting.clock.advance(40 * 3600)
    fire(alerting, NIGHTLY)
    assert alerting.evaluate() == []
    alerting.ledger.write(lambda tx: schedules.set_paused(tx, "work", "nightly", paused=False))
    now = "2026-02-11T02:00:00.000000Z"
    execute(
        alerting.ledger,
        "INSERT INTO circuit_breakers (plugin, command, state, failure_count, opened_at, "
        "updated_at) "
        f"VALUES ('work', 'poll', 'open', 3, '{now}', '{now}')",
    )
    alerting.clock.moment = alerting.clock.moment.replace(day=11, hour=2, minute=0, second=1)
    fire(alerting, NIGHTLY)
    assert alerting.evaluate(8000) == []


def test_schedule_without_success_is_silent_after_for(alerting: Alerting) -> None:
    hourly = Schedule("work", "hourly", Every(3600.0), UTC_ZONE)
    see(alerting, hourly)
    alerting.watch(rule(Condition.SCHEDULE_SILENT, lasts=7200.0))
    fire(alerting, hourly)
    alerting.end(alerting.must_take())
    for hour in range(1, 4):
        alerting.clock.advance(3600)
        fire(alerting, hourly)
        claimed = alerting.must_take()
        verdict = judge(claimed.job, BAD, RULES, alerting.clock.now(), 0.5)
        verdict = replace(verdict, path=(JobStatus.FAILED, JobStatus.DEAD), retry_at=None)
        base_id = alerting.entropy.uuid()
        alerting.ledger.write(lambda tx, v=verdict, b=base_id: settle(tx, v, TxConfig(1.0), b))
        assert [one.news for one in alerting.evaluate(0.5)] == (["firing"] if hour == 3 else [])


def test_silent_plugin_agent_and_webhook(alerting: Alerting) -> None:
    conditions = (Condition.PLUGIN_SILENT, Condition.AGENT_SILENT, Condition.WEBHOOK_SILENT)
    alerting.watched = replace(alerting.watched, endpoints=("/hook/x", "/hook/y"))
    alerting.watch(rule(*conditions, lasts=600.0))
    alerting.evaluate()
    alerting.run(ok=True)
    now = to_text(alerting.clock.now())
    execute(
        alerting.ledger,
        "INSERT INTO gateway_heartbeats (agent_id, cluster_id, last_seen_at, received_at) "
        f"VALUES ('a1', 'c', '{now}', '{now}')",
    )
    assert alerting.evaluate(590) == []
    found = {one.group for one in alerting.evaluate(20)}
    assert found == {"plugin:work", "agent:a1", "webhook:/hook/x", "webhook:/hook/y"}
    alerting.run(ok=True)
    assert [(one.group, one.news) for one in alerting.evaluate()] == [("plugin:work", "resolved")]


def accept(alerting: Alerting, endpoint: str, delivery_id: str | None) -> None:
    """What an accepted request leaves in the ledger."""
    now = alerting.clock.now()
    if delivery_id is None:
        request = SignedRequest(endpoint, alerting.entropy.uuid(), None)
        alerting.ledger.write(lambda tx: webhook_signatures.claim(tx, request, now))
    else:
        values = {"endpoint": endpoint, "delivery_id": delivery_id, "now": to_text(now)}
        alerting.ledger.write(lambda tx: tx.run("insert_receipt", job_id=None, **values))


@pytest.mark.parametrize("delivery_id", ["d1", None])
def test_webhook_is_silent_although_others_are_not(
    alerting: Alerting, delivery_id: str | None
) -> None:
    alerting.watched = replace(alerting.watched, endpoints=("/hook/x", "/hook/y"))
    alerting.watch(rule(Condition.WEBHOOK_SILENT, lasts=600.0))
    alerting.evaluate()
    alerting.clock.advance(500)
    accept(alerting, "/hook/x", delivery_id)
    accepted = to_text(alerting.clock.now())
    assert [one.group for one in alerting.evaluate(200)] == ["webhook:/hook/y"]
    accept(alerting, "/hook/y", delivery_id)
    assert [(one.group, one.news) for one in alerting.evaluate(401)] == [
        ("webhook:/hook/x", "firing"),
        ("webhook:/hook/y", "resolved"),
    ]
    [since] = {one["since"] for one in alerting.messages() if one["group"] == "webhook:/hook/x"}
    assert since == accepted
    assert alerting.messages()[0]["commands"][0] == "ductile system doctor"


def test_silence_of_a_new_endpoint_counts_from_its_first_evaluation(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.WEBHOOK_SILENT, lasts=600.0))
    alerting.clock.advance(86_400)
    alerting.watched = replace(alerting.watched, endpoints=("/hook/x",))
    assert alerting.evaluate() == []
    assert alerting.evaluate(599) == []
    assert [one.group for one in alerting.evaluate()] == ["webhook:/hook/x"]


def test_outage_counts_from_its_start_and_is_reported_after_its_end(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.HEALTH, lasts=60.0, wait=0.0))
    since = alerting.clock.now()
    lasting = Outage("scheduler", "no connection", since)
    short = Outage("retries", "no connection", since, since + timedelta(seconds=59))
    past = Outage("ledger", "no connection", since, since + timedelta(seconds=60))
    alerting.watched = replace(alerting.watched, outages=(lasting, short, past))
    found = {one.group for one in alerting.evaluate(60)}
    assert found == {"part:scheduler", "part:ledger"}
    ledger, scheduler = sorted(alerting.messages(), key=lambda one: str(one["group"]))
    assert scheduler["since"] == ledger["since"] == to_text(since)
    assert ledger["duration_seconds"] == 60
    assert to_text(since + timedelta(seconds=60)) in ledger["first_error"]
    alerting.watched = replace(alerting.watched, outages=(lasting,))
    assert [(one.group, one.news) for one in alerting.evaluate(9)] == [("part:ledger", "resolved")]
    resolved = [one for one in alerting.messages() if one["news"] == "resolved"]
    assert [one["duration_seconds"] for one in resolved] == [60]


def test_old_queue_full_disk_and_bad_health(alerting: Alerting) -> None:
    conditions = (Condition.QUEUE_AGE, Condition.DISK_FREE, Condition.HEALTH)
    limits = {"queue_age": 600.0, "disk_free": DiskLimit(share=0.05)}
    alerting.watch(rule(*conditions, **limits))
    alerting.put("work")
    alerting.watched = replace(alerting.watched, disk=(6, 100))
    outage = Outage("ledger", "is full", alerting.clock.now())
    assert alerting.evaluate(599) == []
    alerting.watched = replace(alerting.watched, disk=(4, 100), outages=(outage,))
    assert {one.group for one in alerting.evaluate(2)} == {"plugin:work", "disk", "part:ledger"}
    alerting.watched = replace(alerting.watched, disk=(50, 100), outages=())
    alerting.end(alerting.must_take())
    assert {one.news for one in alerting.evaluate()} == {"resolved"}


@pytest.mark.parametrize("priority", [5.0, 3600.0])
def test_old_job_with_a_priority(alerting: Alerting, priority: float) -> None:
    alerting.watch(rule(Condition.QUEUE_AGE, queue_age=600.0))
    oldest = alerting.put("work", priority=priority).job_id
    alerting.put("work")
    assert alerting.evaluate(600) == []
    assert [(one.group, one.news) for one in alerting.evaluate()] == [("plugin:work", "firing")]
    [cause] = alerting.alert().causes.items
    assert cause.job_id == oldest
    while (claimed := alerting.take()) is not None:
        alerting.end(claimed)
    assert [one.news for one in alerting.evaluate()] == ["resolved"]


def test_old_jobs_set_aside_count_unless_their_pipeline_is_paused(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.QUEUE_AGE, queue_age=600.0))
    alerting.put("work")
    execute(
        alerting.ledger, "UPDATE job_queue SET set_aside = 1, limit_key = 'k', pipeline = 'nightly'"
    )
    assert [(one.group, one.news) for one in alerting.evaluate(700)] == [("plugin:work", "firing")]
    now = alerting.clock.now()
    pause = Pause(PauseKind.PIPELINE, "nightly", to_text(now), "me", None, None, None)
    alerting.ledger.write(lambda tx: store_pause(tx, pause, now))
    assert [one.news for one in alerting.evaluate()] == ["resolved"]


def test_ended_authorization_and_dead_delivery(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.AUTHORIZATION_ENDED, Condition.DELIVERY_DEAD))
    now = to_text(alerting.clock.now() + timedelta(seconds=1))
    execute(
        alerting.ledger,
        "INSERT INTO plugin_state (plugin_name, state, updated_at) VALUES "
        f"""('work', '{{"rejected_at": 1770000000}}', '{now}')""",
    )
    execute(
        alerting.ledger,
        "INSERT INTO relay_deliveries (id, instance, event_id, event_type, body, status, "
        "last_attempted_at, created_at, error_detail) VALUES "
        f"('d1', 'lab', 'e1', 't', '{{}}', 'dead', '{now}', '{now}', 'HTTP 500')",
    )
    execute(
        alerting.ledger,
        "INSERT INTO webhook_configs (id, source_identifier, event_type, agent_intent, "
        f"target_session, secret, created_at) VALUES (7, 'bank', 'paid', 'i', 's', 'x', '{now}')",
    )
    execute(
        alerting.ledger,
        "INSERT INTO webhook_deliveries (id, webhook_id, session_id, payload, target_url, "
        "signature, status, attempt_count, last_attempted_at, created_at, error_detail, "
        "message_id) VALUES "
        f"(1, 7, 's', '{{}}', '', '', 'dead', 9, '{now}', '{now}', 'HTTP 500', 'm')",
    )
    found = {one.group for one in alerting.evaluate(2)}
    assert found == {"plugin:work", "relay:lab", "webhook:bank/paid"}


def test_silenced_rule_reports_after_the_silence(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    until = to_text(alerting.clock.now() + timedelta(hours=2))
    alerting.ledger.write(
        lambda tx: tx.run("silence_alert_rule", name="broken", until=until, by="me")
    )
    alerting.run()
    assert alerting.evaluate() == []
    assert [one.news for one in alerting.evaluate(7200)] == ["firing"]


def test_recovery_in_a_silence_is_reported_with_its_duration(
    alerting: Alerting,
) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    alerting.run()
    alerting.evaluate()
    until = to_text(alerting.clock.now() + timedelta(hours=3))
    alerting.ledger.write(
        lambda tx: tx.run("silence_alert_rule", name="broken", until=until, by="me")
    )
    alerting.clock.advance(60)
    alerting.run(ok=True)
    assert alerting.evaluate() == []
    assert alerting.evaluate(7200) == []
    assert [one.news for one in alerting.evaluate(3600)] == ["resolved"]
    message = alerting.messages()[-1]
    assert 60 <= message["duration_seconds"] <= 65
    assert ", for 1 min" in message["message"]


def test_late_or_dead_message_is_undelivered_until_a_later_one_arrives(alerting: Alerting) -> None:
    alerting.watch(rule(Condition.JOB_DEAD))
    alerting.run()
    alerting.evaluate()

    def undelivered() -> list[dict[str, Any]]:
        now = alerting.clock.now()
        return alerting.ledger.read(lambda tx: rows.list_undelivered(tx, now))

    alerting.clock.advance(590)
    assert undelivered() == []
    alerting.clock.advance(20)
    assert [row["error"] for row in undelivered()] == ["its job has not started"]
    claimed = alerting.must_take()
    verdict = judge(claimed.job, BAD, RULES, alerting.clock.now(), 0.5)
    verdict = replace(verdict, path=(JobStatus.FAILED, JobStatus.DEAD), retry_at=None)
    base_id = alerting.entropy.uuid()
    alerting.ledger.write(lambda tx: settle(tx, verdict, TX_CONFIG, base_id))
    assert [row["error"] for row in undelivered()] == ["no"]
    assert alerting.evaluate() == []
    alerting.run(ok=True)
    alerting.evaluate()
    alerting.end(alerting.must_take())
    assert undelivered() == []
    # A target with `on_full: skip` drops a message.
    alerting.run()
    [sent] = alerting.evaluate()
    execute(
        alerting.ledger,
        f"UPDATE job_queue SET status = 'skipped', last_error = 'full' WHERE id = '{sent.job_id}'",
    )
    assert [row["error"] for row in undelivered()] == ["full"]


def test_one_node_evaluates_at_a_time(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy
) -> None:
    """On SQLite there is one writer anyway."""
    first, second = open_ledger(), open_ledger()
    if first.engine == "sqlite":
        pytest.skip("one writer")
    inputs = AlertInputs((rule(Condition.JOB_DEAD),), Watched(), "home", clock.now())
    base_id = entropy.uuid()

    def evaluate_meanwhile(tx: Tx) -> object:
        assert tx.hold(*evaluate.LOCK, wait=False)
        return second.write(lambda other: evaluate.evaluate(other, inputs, TX_CONFIG, base_id))

    assert first.write(evaluate_meanwhile) is None
    assert second.write(lambda tx: evaluate.evaluate(tx, inputs, TX_CONFIG, base_id)) is not None


@pytest.mark.parametrize("kind", list(PauseKind))
def test_time_of_a_pause_does_not_count_as_silence_or_age(
    alerting: Alerting, kind: PauseKind
) -> None:
    silent, late = Condition.PLUGIN_SILENT, Condition.QUEUE_AGE
    conditions = [late] if kind is PauseKind.PIPELINE else [silent, late]
    alerting.watch(*(rule(one, name=one, lasts=600.0 * (one is silent)) for one in conditions))
    alerting.run(ok=True)
    alerting.put("work")
    name = {PauseKind.SYSTEM: "", PauseKind.PLUGIN: "work", PauseKind.PIPELINE: "p"}[kind]
    if kind is PauseKind.PIPELINE:
        execute(alerting.ledger, "UPDATE job_queue SET pipeline = 'p' WHERE status = 'queued'")
    now = alerting.clock.now()
    until = now + timedelta(seconds=1000)
    pause = Pause(kind, name, to_text(now), "me", None, until, to_text(until))
    alerting.ledger.write(lambda tx: store_pause(tx, pause, now))
    assert alerting.evaluate(999) == []
    # Its end has come, and the timer removes it a little later.
    assert alerting.evaluate(10) == []
    now = alerting.clock.now()
    assert alerting.ledger.write(lambda tx: end_due_pauses(tx, now))
    assert alerting.evaluate(580) == []
    assert len(alerting.evaluate(20)) == len(conditions)


def test_silence_counts_from_the_resume_of_the_last_entry_of_a_plugin(alerting: Alerting) -> None:
    see(alerting, NIGHTLY)
    alerting.watch(rule(Condition.PLUGIN_SILENT, Condition.SCHEDULE_SILENT, lasts=600.0))
    alerting.run(ok=True)
    for paused, seconds in ((True, 1000), (False, 400), (False, 190)):
        now = alerting.clock.now()
        alerting.ledger.write(lambda tx, n=now, p=paused: set_paused(tx, NIGHTLY, n, paused=p))
        assert alerting.evaluate(seconds) == []
    assert [one.group for one in alerting.evaluate(20)] == ["plugin:work"]


def test_moved_ledger_continues_after_the_events_that_were_evaluated(
    alerting: Alerting, postgres: Server, tmp_path: Path
) -> None:
    """Transaction ids of another server mean nothing here."""
    alerting.watch(rule(Condition.JOB_DEAD))
    alerting.run()
    assert len(alerting.evaluate()) == 1
    alerting.run()
    backup, url = tmp_path / "copy.db", postgres.database()
    alerting.ledger.backup(backup, lambda done, total: None)
    with psycopg.connect(url) as connection:
        replace_ledger(connection, backup, "before", lambda done, total: None)
    moved = PostgresLedger(url)
    moved.start()
    try:
        alerting.ledger, there = moved, alerting.ledger
        assert alerting.evaluate() == []
        assert alerting.alert().causes.count == 2
    finally:
        alerting.ledger = there
        moved.close()


@pytest.mark.parametrize("tables", [("notices", "alert_rules"), ("alert_rules",)])
def test_database_on_a_younger_server_continues_after_evaluated_events(
    alerting: Alerting, open_ledger: Callable[[], Ledger], tables: tuple[str, ...]
) -> None:
    """Neither are evaluated events repeated, nor later ones lost."""
    if not isinstance(alerting.ledger, PostgresLedger):
        pytest.skip("SQLite has no transaction ids")
    alerting.watch(rule(Condition.JOB_DEAD))
    alerting.run()
    assert len(alerting.evaluate()) == 1
    for table in tables:
        execute(alerting.ledger, f"UPDATE {table} SET xact = xact + 4000000000000")
    alerting.ledger = open_ledger()
    assert alerting.evaluate() == []
    assert alerting.alert().causes.count == 1
    alerting.run()
    alerting.evaluate()
    assert alerting.alert().causes.count == 2
