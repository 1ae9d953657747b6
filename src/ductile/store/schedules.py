"""Schedule entries and their slots: a fire and its job are one transaction."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import Ids, from_text, to_text
from ductile.core import breaker as breakers_core
from ductile.core import schedule as core
from ductile.core.schedule import Anchors, Fire, Hold, Reason, Run, Schedule
from ductile.model import Cancellation, Job, JobStatus, NewJob, SubmittedBy
from ductile.record import dataclass
from ductile.store import breakers, cancels, finish, jobs
from ductile.store.chart import Chart
from ductile.store.ledger import Row, Tx


@dataclass(frozen=True, slots=True)
class FirePolicy:
    """What the configuration says of an entry's plugin."""

    max_outstanding: int
    healthy: bool


@dataclass(frozen=True, slots=True)
class Fired:
    """What one round of an entry came to."""

    anchors: Anchors
    job_ids: tuple[str, ...] = ()
    passed: tuple[tuple[datetime, Reason], ...] = ()


def ensure(tx: Tx, schedule: Schedule, rule: str, boot: datetime, now: datetime) -> Anchors:
    """The entry's anchors; made at first sight, made anew where its rule was rewritten."""
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    at = to_text(now)
    tx.run("ensure_entry", rule=rule, now=at, **key)
    tx.run("rearm_entry", rule=rule, now=at, **key)
    anchors = core.started(schedule, _anchors(tx.one("entry", **key), boot), boot)
    _store(tx, schedule, anchors)
    return anchors


def anchors_of(tx: Tx, schedule: Schedule, boot: datetime) -> Anchors | None:
    row = tx.one("entry", plugin=schedule.plugin, schedule_id=schedule.id)
    return None if row is None else _anchors(row, boot)


def _anchors(row: Row | None, boot: datetime) -> Anchors:
    assert row is not None
    first_seen, last_fire, fired_at, passed, success, paused, exhausted = row
    return Anchors(
        first_seen=from_text(first_seen),
        boot=boot,
        last_fire=_moment(last_fire),
        last_fired_at=_moment(fired_at),
        last_passed=_moment(passed),
        last_success_at=_moment(success),
        paused=bool(paused),
        exhausted=bool(exhausted),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)


def _store(tx: Tx, schedule: Schedule, anchors: Anchors) -> None:
    tx.run(
        "move_entry",
        plugin=schedule.plugin,
        schedule_id=schedule.id,
        last_fire=_text(anchors.last_fire),
        last_fired_at=_text(anchors.last_fired_at),
        last_passed=_text(anchors.last_passed),
        exhausted=int(anchors.exhausted),
    )


def fire_due(
    tx: Tx,
    schedule: Schedule,
    policy: FirePolicy,
    chart: Chart,
    *,
    boot: datetime,
    now: datetime,
    base_id: str,
) -> Fired | None:
    """One round of an entry: its due slots fire, or leave a row that says why not."""
    ids = Ids(base_id)
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    row = tx.one("entry_for_update", **key)
    if row is None:
        return None
    decision = core.due(schedule, _anchors(row, boot), now)
    anchors = decision.anchors
    passed = [(item.slot, item.reason) for item in decision.passed]
    fired: list[str] = []
    for run in decision.fires:
        job_id = ids.next()
        verdict = _admit(tx, schedule, run, policy, chart, job_id, now)
        if isinstance(verdict, Hold):
            passed.append((run.slot, verdict.reason))
            anchors = core.held(schedule, anchors, run.slot, now)
            continue
        if not tx.run("slot_fired", slot=to_text(run.slot), job_id=job_id, now=to_text(now), **key):
            anchors = core.held(schedule, anchors, run.slot, now)
            continue
        if verdict.cancel_outstanding:
            _cancel_outstanding(tx, schedule, chart, ids, now)
        _enqueue(tx, schedule, run, chart, job_id, now)
        fired.append(job_id)
        anchors = core.fired(schedule, anchors, run.slot, now)
    for slot, reason in passed:
        tx.run("slot_passed", slot=to_text(slot), reason=reason.value, now=to_text(now), **key)
    _store(tx, schedule, anchors)
    return Fired(anchors, tuple(fired), tuple(passed))


def _admit(
    tx: Tx,
    schedule: Schedule,
    run: Run,
    policy: FirePolicy,
    chart: Chart,
    job_id: str,
    now: datetime,
) -> Fire | Hold:
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    outstanding: dict[str, int] = dict(tx.all("entry_outstanding", **key))
    target = {"plugin": schedule.plugin, "command": schedule.command}
    before = breakers.held(tx, **target)
    row = tx.one("scheduled_outstanding", **target)
    count = row[0] if row else 0
    allowed, after, transition = breakers_core.allow(
        before, now, chart.breaker(schedule.plugin), job_id=job_id, outstanding=count
    )
    verdict = core.admit(
        schedule,
        run,
        queued=outstanding.get("queued", 0),
        running=outstanding.get("running", 0),
        max_outstanding=policy.max_outstanding,
        breaker_allows=allowed,
        healthy=policy.healthy,
    )
    if isinstance(verdict, Fire) and after != before:
        breakers.put(tx, schedule.plugin, schedule.command, after, transition, now)
    return verdict


def _enqueue(
    tx: Tx, schedule: Schedule, run: Run, chart: Chart, job_id: str, now: datetime
) -> None:
    new = NewJob(
        schedule.plugin,
        schedule.command,
        SubmittedBy.SCHEDULER,
        payload=schedule.payload,
        max_attempts=chart.max_attempts(schedule.plugin, schedule.command),
    )
    jobs.enqueue(tx, new, id=job_id, now=now, dedupe_ttl=0.0, snapshot_id=chart.snapshot_id)
    tx.run("schedule_job", id=job_id, schedule_id=schedule.id, slot=to_text(run.slot))


def _cancel_outstanding(tx: Tx, schedule: Schedule, chart: Chart, ids: Ids, now: datetime) -> None:
    """End the entry's queued jobs here; its running ones have to be killed by who runs them."""
    for row in tx.all("entry_jobs", plugin=schedule.plugin, schedule_id=schedule.id):
        job: Job = jobs.from_row(row)
        if job.status is JobStatus.RUNNING:
            cancels.request(tx, job, Cancellation.SUPERSEDED, now)
        else:
            reason = Cancellation.SUPERSEDED.value
            finish.end_queued(tx, job, JobStatus.DEAD, reason, now, chart, ids)


def pause(tx: Tx, plugin: str, schedule_id: str, *, paused: bool) -> bool:
    return tx.run("pause_entry", plugin=plugin, schedule_id=schedule_id, paused=int(paused)) == 1
