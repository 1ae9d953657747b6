"""Schedule entries and their slots: a fire and its job are one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from itertools import groupby

import orjson

from ductile.clock import Ids, from_text, to_text
from ductile.core.schedules import breaker as breakers_core
from ductile.core.schedules import decide as core
from ductile.core.schedules import history as entries
from ductile.core.schedules.decide import Anchors, Fire, Hold, Reason, Run, Schedule
from ductile.model import Cancellation, Job, JobStatus, NewJob, SubmittedBy
from ductile.record import dataclass
from ductile.store import breakers
from ductile.store.engines.api import Row, Tx
from ductile.store.jobs import cancel_requests, close, enqueue, read
from ductile.store.tx_config import TxConfig


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


def ensure(tx: Tx, schedule: Schedule, boot: datetime, now: datetime) -> Anchors:
    """The entry's anchors as of `now`, made at first sight; its rule is in force from then on."""
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    rule = entries.rule_text(schedule)
    tx.run("ensure_entry", rule=rule, now=to_text(now), **key)
    # Another node may be about to fire it.
    row = tx.one("entry_for_update", **key)
    assert row is not None
    known, before = _anchors(row, boot), row[-1]
    anchors = entries.seen(schedule, known, before, boot, now)
    if before != rule:
        tx.run(
            "rewrite_entry",
            rule=rule,
            first_seen=to_text(anchors.first_seen),
            last_success_at=_text(anchors.last_success_at),
            **_moved(anchors),
            **key,
        )
    return anchors


def withdraw(tx: Tx, configured: Collection[tuple[str, str]]) -> None:
    """Mark the entries that the configuration lacks, so that they are known when they return."""
    for row in tx.dicts("entries"):
        plugin, id, rule = row["plugin"], row["schedule_id"], row["rule"]
        gone = entries.withdrawn(rule)
        if (plugin, id) not in configured and rule != gone:
            tx.run("withdraw_entry", plugin=plugin, schedule_id=id, before=rule, rule=gone)


def anchors_of(tx: Tx, schedule: Schedule, boot: datetime) -> Anchors | None:
    row = tx.one("entry", plugin=schedule.plugin, schedule_id=schedule.id)
    return None if row is None else core.started(schedule, _anchors(row, boot), boot)


def remembered(tx: Tx, schedule: Schedule, boot: datetime, now: datetime) -> Anchors | None:
    """What `ensure` would say of an entry that has been seen before; nothing is changed."""
    row = tx.one("entry", plugin=schedule.plugin, schedule_id=schedule.id)
    if row is None:
        return None
    return entries.seen(schedule, _anchors(row, boot), row[-1], boot, now)


def _anchors(row: Row, boot: datetime) -> Anchors:
    first_seen, last_fire, fired_at, passed, success, paused, exhausted, _ = row
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


def _moved(anchors: Anchors) -> dict[str, object]:
    """What a round may change."""
    return {
        "last_fire": _text(anchors.last_fire),
        "last_fired_at": _text(anchors.last_fired_at),
        "last_passed": _text(anchors.last_passed),
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
) -> Fired | None:
    """One round of an entry: its due slots fire, or leave a row that says why not."""
    ids = Ids(base_id)
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    row = tx.one("entry_for_update", **key)
    if row is None:
        return None
    known = replace(core.started(schedule, _anchors(row, boot), boot), awake=awake)
    decision = core.due(schedule, known, now)
    anchors = decision.anchors
    passed = [(item.slot, item.reason) for item in decision.passed]
    fired: list[str] = []
    for run in decision.fires:
        job_id = ids.next()
        verdict = _admit(tx, schedule, run, policy, tx_config, job_id, now)
        if isinstance(verdict, Hold):
            passed.append((run.slot, verdict.reason))
            anchors = core.held(schedule, anchors, run, verdict.reason, now)
            continue
        if not tx.run("slot_fired", slot=to_text(run.slot), job_id=job_id, now=to_text(now), **key):
            anchors = core.fired_before(schedule, anchors, run.slot, now)
            continue
        if verdict.cancel_outstanding:
            _cancel_outstanding(tx, schedule, tx_config, ids, now)
        _enqueue(tx, schedule, run, tx_config, job_id, now)
        fired.append(job_id)
        anchors = core.fired(schedule, anchors, run.slot, now)
    _tell(tx, schedule, passed, now)
    tx.run("move_entry", **_moved(anchors), **key)
    return Fired(anchors, tuple(fired), tuple(passed))


def _tell(
    tx: Tx, schedule: Schedule, passed: Iterable[tuple[datetime, Reason]], now: datetime
) -> None:
    """One statement a reason: there may be very many slots."""
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
    key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
    outstanding: dict[str, int] = dict(tx.all("entry_outstanding", **key))
    target = {"plugin": schedule.plugin, "command": schedule.command}
    before = breakers.held(tx, **target)
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
        max_outstanding=policy.max_outstanding,
        breaker_allows=allowed,
        healthy=policy.healthy,
    )
    if isinstance(verdict, Fire) and after != before:
        breakers.put(tx, schedule.plugin, schedule.command, after, transition, now)
    return verdict


def _enqueue(
    tx: Tx, schedule: Schedule, run: Run, tx_config: TxConfig, job_id: str, now: datetime
) -> None:
    new = NewJob(schedule.plugin, schedule.command, SubmittedBy.SCHEDULER, schedule.payload)
    enqueue.enqueue_job(tx, new, tx_config, id=job_id, now=now)
    tx.run("schedule_job", id=job_id, schedule_id=schedule.id, slot=to_text(run.slot))


def _cancel_outstanding(
    tx: Tx, schedule: Schedule, tx_config: TxConfig, ids: Ids, now: datetime
) -> None:
    """End the entry's queued jobs here; its running ones have to be killed by who runs them."""
    for row in tx.all("entry_jobs", plugin=schedule.plugin, schedule_id=schedule.id):
        job: Job = read.parse_job(row)
        if job.status is JobStatus.RUNNING:
            cancel_requests.request_cancel(tx, job, Cancellation.SUPERSEDED, now)
        else:
            reason = Cancellation.SUPERSEDED.value
            close.end_queued(tx, job, JobStatus.DEAD, reason, now, tx_config, ids)


def pause(tx: Tx, plugin: str, schedule_id: str, *, paused: bool) -> bool:
    return tx.run("pause_entry", plugin=plugin, schedule_id=schedule_id, paused=int(paused)) == 1
