"""The end of a scope: the join after a split, the handlers after a run."""

from __future__ import annotations

from typing import Any

import orjson

from ductile.clock import to_text
from ductile.core.flow.limits import OnFull
from ductile.core.pipelines.intents import JoinStep
from ductile.core.pipelines.join_payload import EndedJob
from ductile.core.pipelines.lineage import SplitScope
from ductile.model import JobStatus, RunStatus
from ductile.store.engines.api import Tx
from ductile.store.flow import run_limits
from ductile.store.jobs import runs, scopes
from ductile.store.jobs.closing.run_turns import cancel_displaced, end_scope
from ductile.store.jobs.closing.work import Closing, ScopeCheck, Spawn, Work
from ductile.store.jobs.scopes import ScopeRow
from ductile.store.jobs.spawn import SpawnPoint


def check_scope(closing: Closing, scope_id: str) -> list[Work]:
    """End the scope if nothing in it can continue; the scope around it is next."""
    scope = scopes.lock_scope(closing.tx, scope_id)
    if scope is None or scope.status != "open":
        return []
    if scopes.is_busy(closing.tx, scope_id):
        # A step of a run that is being cancelled may have led to others.
        limit = closing.tx_config.run_limits.get(scope.pipeline)
        if limit is None or limit.on_full is not OnFull.CANCEL:
            return []
        return cancel_displaced(closing, scopes.find_run_id(closing.tx, scope_id) or scope_id)
    work: list[Work] = []
    failure = closing.tx.one("scope_failure", id=scope_id)
    if failure is not None and not (scope.split and scope.join_always):
        reason = scopes.describe_failure(*failure[:5])
        if scope.displaced_by is not None:
            reason = run_limits.describe_newer(scope.displaced_by)
        work += end_scope(closing, scope, "failed", reason)
        work += _start_handlers(closing, scope, RunStatus.FAILED, reason)
    elif scope.split:
        work += _join(closing, scope)
    else:
        work += end_scope(closing, scope, "ended")
        if scope.schedule_id is not None:
            key = {"pipeline": scope.pipeline, "schedule_id": scope.schedule_id}
            closing.tx.run("run_succeeded", now=to_text(closing.now), **key)
        work += _start_handlers(closing, scope, RunStatus.SUCCEEDED)
    if scope.parent_id is not None:
        work.append(ScopeCheck(scope.parent_id))
    return work


def _start_handlers(
    closing: Closing, scope: ScopeRow, status: RunStatus, reason: str | None = None
) -> list[Work]:
    """Start `on_failure`, `on_success` and `always` of a run that has just ended."""
    router = closing.tx_config.router
    if scope.split or not router.has_handlers(scope.pipeline):
        return []
    end = runs.describe_end(closing.tx, scope, status, reason)
    event_ids = [closing.ids.next() for _ in range(2)]
    intents = router.handlers(end, now=closing.now, event_ids=event_ids).intents
    return [Spawn(intents, SpawnPoint())]


def _join(closing: Closing, scope: ScopeRow) -> list[Work]:
    """End the split and continue in the scope around it, by an event with this scope's id."""
    rows = closing.tx.all("ended_jobs_of_scope", id=scope.id)
    ends = [
        EndedJob(id, parent, at, step, JobStatus(status), parse_result(log), bool(joined), err)
        for id, parent, at, step, status, log, joined, err in rows
    ]
    split = _split_scope(closing.tx, scope)
    routing = closing.tx_config.router.join(split, ends, now=closing.now, event_id=scope.id)
    if routing.unrouted:
        reason = routing.unrouted[0].reason
        scopes.end_scope(closing.tx, scope, "failed", closing.now, reason=reason)
        return []
    scopes.end_scope(closing.tx, scope, "ended", closing.now)
    point = SpawnPoint(scope.parent_id, scope.context_id, join_of=scope.id)
    return [Spawn(routing.intents, point)]


def _split_scope(tx: Tx, scope: ScopeRow) -> SplitScope:
    join = None
    if scope.join_step is not None:
        join = JoinStep(scope.join_step, scope.join_plugin or "", scope.join_command or "")
    return SplitScope(
        scope.pipeline,
        scope.split,
        scope.branch,
        scope.parent_job_id,
        scope.hops,
        load_context(tx, scope.context_id),
        join,
    )


def load_context(tx: Tx, context_id: str | None) -> dict[str, Any]:
    row = tx.one("context", id=context_id or "")
    return orjson.loads(row[0]) if row else {}


def parse_result(response: str | None) -> Any:
    return None if response is None else orjson.loads(response).get("result")
