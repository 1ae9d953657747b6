"""Taking the next job: FIFO among what may run now, on both engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from operator import attrgetter

from ductile.clock import moment_of, to_text
from ductile.core.jobs import retry
from ductile.model import Job, Notice
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Row, Tx
from ductile.store.jobs import enqueue

RETRIES_AT_ONCE = 500
LAST_PLACE = 2**63 - 1
LONGEST_DELAY = timedelta(seconds=retry.LONGEST_DELAY)


@dataclass(frozen=True, slots=True)
class ClaimPolicy:
    """What may be claimed, by whom."""

    owner: str
    snapshot_id: str | None = None
    caps: Mapping[str, int] = field(default_factory=dict)
    """How many jobs of a plugin may run at once, over all nodes; absent is uncapped."""
    init_only: frozenset[str] = frozenset()
    """Plugins whose `init` has yet to succeed: only that may run."""
    held: frozenset[str] = frozenset()
    """Plugins that are refused: their jobs wait."""
    known: frozenset[str] | None = None
    """Where other nodes may know others: the plugins that this one can run."""

    def leaves(self, plugin: str) -> bool:
        """Whether this plugin's jobs are not for us to claim."""
        return plugin in self.held or (self.known is not None and plugin not in self.known)


@dataclass(frozen=True, slots=True)
class Claimed:
    job: Job
    state: str
    """The plugin's state, as JSON text."""
    context: str = "{}"
    """What it entered with: `accumulated_json` of that row."""


@dataclass(frozen=True, slots=True)
class _Head:
    """Where the oldest job of a plugin stands that may run now."""

    seq: int
    plugin: str
    alone: bool
    """Each start of this plugin has to be looked at by itself."""


def claim(
    tx: Tx, policy: ClaimPolicy, now: datetime, seats: int = 1, ahead: int = 0
) -> list[Claimed]:
    """Start the oldest jobs that may run, one a seat. Once this commits, their attempts count.

    And up to `ahead` more, for seats that will be free in a moment: as long as the next in line is
    one that may be counted before there is a seat for it.
    """
    started: list[Claimed] = []
    while (free := seats - len(started)) + ahead > 0:
        some = _start_next(tx, policy, now, max(0, free), free + ahead)
        if not some:
            break
        started += some
    return started


def _start_next(tx: Tx, policy: ClaimPolicy, now: datetime, seats: int, most: int) -> list[Claimed]:
    """Those that stand together at the head of the line; at least one, if one may run."""
    heads = _heads(tx, policy)
    for place, head in enumerate(heads):
        run: list[tuple[int, str]] = []
        if not head.alone and (most > 1 or not seats):
            following = heads[place + 1].seq if place + 1 < len(heads) else LAST_PLACE
            run = _run(tx, head.plugin, following, seats, most)
        if len(run) > 1:
            return _start_run(tx, policy, head.plugin, run, now)
        if not run and not seats:
            return []
        # None where other nodes have taken all that this plugin had.
        started = _start_first(tx, policy, head.plugin, now)
        if started is not None:
            return [started]
    return []


def _heads(tx: Tx, policy: ClaimPolicy) -> list[_Head]:
    """Of each plugin that has a job that may run now, in the order of the line."""
    heads: list[_Head] = []
    for plugin, running, seq, has_key in tx.all("ready_heads"):
        if policy.leaves(plugin):
            continue
        cap = policy.caps.get(plugin)
        if cap is not None and not _below_cap(tx, plugin, running, cap):
            continue
        init_only = plugin in policy.init_only
        if not init_only and not has_key:
            heads.append(_Head(seq, plugin, alone=cap is not None))
            continue
        # Its head may have to wait, while another behind it need not.
        row = tx.one("first_ready", plugin=plugin, init_only=int(init_only))
        if row is not None:
            heads.append(_Head(row[0], plugin, alone=True))
    return sorted(heads, key=attrgetter("seq"))


def _run(tx: Tx, plugin: str, following: int, seats: int, most: int) -> list[tuple[int, str]]:
    """The plugin's jobs in line before the place `following` that may be started together.

    One that has no seat yet has attempts left: should the gateway die now, this one counts.
    """
    ids: list[tuple[int, str]] = []
    rows = tx.all("ready_run", plugin=plugin, before=following, limit=most)
    for seq, id, has_key, is_last_attempt in rows:
        if has_key or (is_last_attempt and len(ids) >= seats):
            break
        ids.append((seq, id))
    return ids


def _start_run(
    tx: Tx, policy: ClaimPolicy, plugin: str, run: list[tuple[int, str]], now: datetime
) -> list[Claimed]:
    rows = tx.all(
        "start_run",
        plugin=plugin,
        first=run[0][0],
        last=run[-1][0],
        owner=policy.owner,
        snapshot_id=policy.snapshot_id,
        now=to_text(now),
    )
    started = {claimed.job.id: claimed for claimed in (_started(tx, row, now) for row in rows)}
    return [started[id] for _, id in run if id in started]


def _start_first(tx: Tx, policy: ClaimPolicy, plugin: str, now: datetime) -> Claimed | None:
    row = tx.one(
        "start_first",
        plugin=plugin,
        init_only=int(plugin in policy.init_only),
        owner=policy.owner,
        snapshot_id=policy.snapshot_id,
        now=to_text(now),
    )
    return None if row is None else _started(tx, row, now)


def start(tx: Tx, policy: ClaimPolicy, job_id: str, now: datetime) -> Claimed | None:
    """Start this one job, whatever waits before it; None where it no longer waits."""
    row = tx.one(
        "start_job",
        id=job_id,
        owner=policy.owner,
        snapshot_id=policy.snapshot_id,
        now=to_text(now),
    )
    return None if row is None else _started(tx, row, now)


def _started(tx: Tx, row: Row, now: datetime) -> Claimed:
    *columns, state, context = row
    job = enqueue.from_row(columns)
    _record_start(tx, job, now)
    return Claimed(job, state or "{}", context or "{}")


def _below_cap(tx: Tx, plugin: str, running: int, cap: int) -> bool:
    if running >= cap or not tx.hold("plugin", plugin, wait=False):
        return False
    # A new statement, so that its snapshot is younger than the lock.
    row = tx.one("running_of_plugin", plugin=plugin)
    return row is not None and row[0] < cap


def _record_start(tx: Tx, job: Job, now: datetime) -> None:
    tx.run(
        "insert_transition",
        job_id=job.id,
        from_status="queued",
        to_status="running",
        attempt=job.attempt,
        reason=None,
        now=to_text(now),
    )
    told = {
        "job_id": job.id,
        "plugin": job.plugin,
        "command": job.command,
        "attempt": job.attempt,
        "status": "running",
    }
    notices.post(tx, Notice("jobs", "job.started", told), now, job_id=job.id, plugin=job.plugin)


def promote_due(tx: Tx, now: datetime) -> int:
    """Make ready what has waited long enough; say how many, at most `RETRIES_AT_ONCE`."""
    horizon = to_text(now + LONGEST_DELAY)
    count = tx.run("due_retries", now=to_text(now), horizon=horizon, limit=RETRIES_AT_ONCE)
    tx.effects.ready += count
    return count


def next_retry(tx: Tx, now: datetime) -> datetime | None:
    """When `promote_due` will have something to do; not after `now` where it has already.

    None where nothing waits, or nobody can say until when.
    """
    row = tx.one("next_retry")
    if row is None or row[0] is None:
        return None
    earliest, latest = row
    if earliest <= to_text(now) or latest > to_text(now + LONGEST_DELAY):
        return now
    return moment_of(earliest)


def has_foreign_retry(tx: Tx) -> bool:
    """Whether a job waits until a time that is not written in our form."""
    return tx.one("has_foreign_retry") is not None


def mend_retries(tx: Tx) -> dict[str, str | None]:
    """Write such times in our form, so that their text order is time order.

    The jobs, at most `RETRIES_AT_ONCE`, and when each is due: None is at once, for the time
    could not be read.
    """
    mended: dict[str, str | None] = {}
    for id, text in tx.all("foreign_retries", limit=RETRIES_AT_ONCE):
        moment = moment_of(text)
        mended[id] = None if moment is None else to_text(moment)
        tx.run("set_retry", id=id, retry_at=mended[id])
        tx.effects.ready += moment is None
    return mended


def has_ready(tx: Tx) -> bool:
    return tx.one("has_ready") is not None
