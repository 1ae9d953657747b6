"""Schedule entries and their occurrences: a fire and its job are one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import groupby

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, from_text, to_text
from ductile.core.schedules import breaker as breakers_core
from ductile.core.schedules import decide as core
from ductile.core.schedules import history as entries
from ductile.core.schedules.decide import Anchors, Fire, Hold, Reason, Run, Schedule
from ductile.model import Cancellation, Event, Job, JobStatus, NewJob, SubmittedBy
from ductile.store import breakers
from ductile.store.engines.api import Row, Tx
from ductile.store.jobs import cancel_requests, close, enqueue, read, runs
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.tx_config import TxConfig

UNFINISHED = (JobStatus.QUEUED, JobStatus.RUNNING)
MAX_CANCELLED = 2000
"""Jobs of a run that a new run cancels."""


@dataclass(frozen=True, slots=True)
class FirePolicy:
    """What limits the fires of an entry: the plugin's configuration and health."""

    max_outstanding: int
    healthy: bool


@dataclass(frozen=True, slots=True)
class FireResult:
    """The result of one `fire_due`."""

    anchors: Anchors
    job_ids: tuple[str, ...] = ()
    passed: tuple[tuple[datetime, Reason], ...] = ()
    """The occurrences that did not fire, and why."""
    waits_for_polls: bool = False
    """Whether one stays due because polls of other producers are outstanding."""


def ensure_entry(tx: Tx, schedule: Schedule, boot: datetime, now: datetime) -> Anchors:
    """The entry's anchors at `now`; inserts a new entry, and stores its current rule."""
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    rule = entries.rule_text(schedule)
    tx.run("ensure_entry", rule=rule, now=to_text(now), **key)
    # Locked, because another node may be about to fire it.
    row = tx.one("entry_for_update", **key)
    assert row is not None
    known, before = _parse_anchors(row, boot), row[-1]
    anchors = entries.seen(schedule, known, before, boot, now)
    if before != rule:
        tx.run(
            "rewrite_entry",
            rule=rule,
            first_seen=to_text(anchors.first_seen),
            last_success_at=_format_time(anchors.last_success_at),
            **_changeable_columns(anchors),
            **key,
        )
    return anchors


def withdraw_entries(tx: Tx, configured: Collection[tuple[str, str]]) -> None:
    """Mark the entries that are not configured any more, so that they are known if they return."""
    for row in tx.dicts("entries"):
        plugin, id, rule = row["plugin"], row["schedule_id"], row["rule"]
        gone = entries.withdrawn(rule)
        if (plugin, id) not in configured and rule != gone:
            tx.run("withdraw_entry", plugin=plugin, schedule_id=id, before=rule, rule=gone)


def load_anchors(tx: Tx, schedule: Schedule, boot: datetime) -> Anchors | None:
    """The stored anchors of an entry as of this boot; None if it was never seen."""
    row = tx.one("entry", plugin=schedule.plugin, schedule_id=schedule.id)
    return None if row is None else core.started(schedule, _parse_anchors(row, boot), boot)


def preview_entry(tx: Tx, schedule: Schedule, boot: datetime, now: datetime) -> Anchors | None:
    """What `ensure_entry` would return for a known entry; None for a new one. Writes nothing."""
    row = tx.one("entry", plugin=schedule.plugin, schedule_id=schedule.id)
    if row is None:
        return None
    return entries.seen(schedule, _parse_anchors(row, boot), row[-1], boot, now)


def preview_anchors(tx: Tx, schedule: Schedule, boot: datetime, now: datetime) -> Anchors:
    """What `ensure_entry` would return, also for a new entry. Writes nothing."""
    known = preview_entry(tx, schedule, boot, now)
    return known or Anchors(first_seen=now, boot=boot)


def _parse_anchors(row: Row, boot: datetime) -> Anchors:
    first_seen, last_fire, fired_at, passed, success, paused, exhausted, _ = row
    return Anchors(
        first_seen=from_text(first_seen),
        boot=boot,
        last_fire=_parse_time(last_fire),
        last_fired_at=_parse_time(fired_at),
        last_passed=_parse_time(passed),
        last_success_at=_parse_time(success),
        paused=bool(paused),
        exhausted=bool(exhausted),
    )


def _parse_time(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)


def _format_time(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)


def _changeable_columns(anchors: Anchors) -> dict[str, object]:
    """The columns that a fire may change."""
    return {
        "last_fire": _format_time(anchors.last_fire),
        "last_fired_at": _format_time(anchors.last_fired_at),
        "last_passed": _format_time(anchors.last_passed),
        "exhausted": int(anchors.exhausted),
    }


def fire_due(
    tx: Tx,
    schedule: Schedule,
    policy: FirePolicy,
    tx_config: TxConfig,
    *,
    boot: datetime,
    now: datetime,
    base_id: str,
    awake: datetime | None = None,
) -> FireResult | None:
    """Fire the due occurrences of an entry, or record why they do not; None if it is unknown."""
    ids = Ids(base_id)
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    row = tx.one("entry_for_update", **key)
    if row is None:
        return None
    known = replace(core.started(schedule, _parse_anchors(row, boot), boot), awake=awake)
    decision = core.due(schedule, known, now)
    anchors = decision.anchors
    passed = [(item.slot, item.reason) for item in decision.passed]
    fired: list[str] = []
    waits_for_polls = False
    for run in decision.fires:
        job_id = ids.next()
        verdict = _admit(tx, schedule, run, policy, tx_config, job_id, now)
        if isinstance(verdict, Hold):
            passed.append((run.slot, verdict.reason))
            anchors = core.held(schedule, anchors, run, verdict, now)
            waits_for_polls |= verdict.by_other_polls
            continue
        if not tx.run("slot_fired", slot=to_text(run.slot), job_id=job_id, now=to_text(now), **key):
            anchors = core.fired_before(schedule, anchors, run.slot, now)
            continue
        if verdict.cancel_outstanding:
            _cancel_outstanding(tx, schedule, tx_config, ids, now)
        if schedule.pipeline is not None:
            job_id = _start_pipeline(tx, schedule, schedule.pipeline, tx_config, ids, now)
            tx.run("slot_started", slot=to_text(run.slot), job_id=job_id, **key)
        else:
            _enqueue(tx, schedule, run, tx_config, job_id, now)
        fired.append(job_id)
        anchors = core.fired(schedule, anchors, run.slot, now)
    _record_passed(tx, schedule, passed, now)
    tx.run("move_entry", **_changeable_columns(anchors), **key)
    return FireResult(anchors, tuple(fired), tuple(passed), waits_for_polls)


def _record_passed(
    tx: Tx, schedule: Schedule, passed: Iterable[tuple[datetime, Reason]], now: datetime
) -> None:
    """One statement per reason, because there may be very many occurrences."""
    for reason, group in groupby(passed, key=lambda item: item[1]):
        slots = orjson.dumps([to_text(slot) for slot, _ in group]).decode()
        tx.run(
            "slots_passed",
            plugin=schedule.plugin,
            schedule_id=schedule.id,
            ids=slots,
            reason=reason.value,
            now=to_text(now),
        )


def _admit(
    tx: Tx,
    schedule: Schedule,
    run: Run,
    policy: FirePolicy,
    tx_config: TxConfig,
    job_id: str,
    now: datetime,
) -> Fire | Hold:
    if schedule.pipeline is not None:
        # The entry is locked, so that no other node starts a run of it meanwhile.
        return core.admit_run(schedule, run, open_runs=len(_open_runs(tx, schedule)))
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    target = {"plugin": schedule.plugin, "command": schedule.command}
    # The lock also makes other nodes wait that would fire another entry of the same command.
    before = breakers.lock_breaker(tx, **target)
    outstanding: dict[str, int] = dict(tx.all("entry_outstanding", **key))
    others = sum(count for (count,) in tx.all("other_polls", command=schedule.command, **key))
    row = tx.one("scheduled_outstanding", **target)
    count = row[0] if row else 0
    allowed, after, transition = breakers_core.allow(
        before, now, tx_config.breaker(schedule.plugin), job_id=job_id, outstanding=count
    )
    verdict = core.admit(
        schedule,
        run,
        queued=outstanding.get("queued", 0),
        running=outstanding.get("running", 0),
        others=others,
        max_outstanding=policy.max_outstanding,
        breaker_allows=allowed,
        healthy=policy.healthy,
    )
    if isinstance(verdict, Fire) and after != before:
        breakers.store_breaker(tx, schedule.plugin, schedule.command, after, transition, now)
    return verdict


def _enqueue(
    tx: Tx, schedule: Schedule, run: Run, tx_config: TxConfig, job_id: str, now: datetime
) -> None:
    new = NewJob(
        schedule.plugin,
        schedule.command,
        SubmittedBy.SCHEDULER,
        schedule.payload,
        priority=schedule.priority,
    )
    enqueue.enqueue_job(tx, new, tx_config, id=job_id, now=now)
    tx.run("schedule_job", id=job_id, schedule_id=schedule.id, slot=to_text(run.slot))


def _start_pipeline(
    tx: Tx, schedule: Schedule, pipeline: str, tx_config: TxConfig, ids: Ids, now: datetime
) -> str:
    """Start a run of the entry's pipeline; returns its first job, or the run if it has none yet."""
    router, by = tx_config.router, SubmittedBy.SCHEDULER
    kind = router.pipelines[pipeline].on or f"{by}.trigger"
    event = Event(kind, schedule.payload, None, by.value, now, ids.next())
    intent = router.start(pipeline, event, submitted_by=by)
    assert intent is not None
    spawned = close.write_intents(tx, (intent,), SpawnPoint(), tx_config, ids, now)
    run_id = spawned.scope_ids[0]
    tx.run("schedule_run", id=run_id, schedule_id=schedule.id)
    return spawned.job_ids[0] if spawned.job_ids else run_id


def _open_runs(tx: Tx, schedule: Schedule) -> list[str]:
    key = {"pipeline": schedule.pipeline, "schedule_id": schedule.id}
    return [id for (id,) in tx.all("open_scheduled_runs", **key)]


def _outstanding_jobs(tx: Tx, schedule: Schedule) -> Iterator[Job]:
    if schedule.pipeline is None:
        for row in tx.all("entry_jobs", plugin=schedule.plugin, schedule_id=schedule.id):
            yield read.parse_job(row)
        return
    for run_id in _open_runs(tx, schedule):
        for job_id in runs.list_job_ids(tx, run_id, UNFINISHED, MAX_CANCELLED):
            # The end of one job may have ended others.
            job = read.load_job(tx, job_id)
            if job is not None and job.status in UNFINISHED:
                yield job


def _cancel_outstanding(
    tx: Tx, schedule: Schedule, tx_config: TxConfig, ids: Ids, now: datetime
) -> None:
    """End the entry's queued jobs, and ask the nodes that run the others to kill them."""
    for job in _outstanding_jobs(tx, schedule):
        if job.status is JobStatus.RUNNING:
            cancel_requests.request_cancel(tx, job, Cancellation.SUPERSEDED, now)
        else:
            reason = Cancellation.SUPERSEDED.value
            close.end_queued(tx, job, JobStatus.DEAD, reason, now, tx_config, ids)


def set_paused(tx: Tx, plugin: str, schedule_id: str, *, paused: bool) -> bool:
    """Pause or resume an entry; False if it is unknown."""
    return tx.run("pause_entry", plugin=plugin, schedule_id=schedule_id, paused=int(paused)) == 1
