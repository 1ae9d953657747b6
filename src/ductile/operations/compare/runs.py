"""`pipeline compare`: recorded runs through changed routes and conditions; no plugin runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.config import find, load
from ductile.core.pipelines.graph import SWITCH_SUFFIX
from ductile.core.values.differences import ABSENT, find_differences
from ductile.core.values.redact import Redactor, hide_secret_keys
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.services import Services
from ductile.errors import NotFound
from ductile.model import MIB
from ductile.operations.compare.replay import RecordedRun, RecordedStep, ReplayedRun, replay
from ductile.operations.compare.verdict import MAX_DIFFERENCES, describe_difference
from ductile.store.engines.api import Tx
from ductile.store.jobs import read, runs

Document = dict[str, Any]
PAGE_RUNS, MAX_STEPS = 20, 300


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Which runs to compare: one, or the newest of a pipeline."""

    pipeline: str
    directory: Path | None = None
    """With another configuration; None: the files of the running one."""
    run: str | None = None
    limit: int = 50
    since: datetime | None = None
    before: runs.RunCursor | None = None


def compare_runs(services: Services, wanted: RunComparison) -> Document:
    """A page of runs, newest first, and what the files would do with their events."""
    running, environ = services.compiled, services.environ
    path = running.loaded.path
    if wanted.directory is not None:
        path = find(wanted.directory, environ)
    changed = build(load(path, environ=environ), boot_marker="", environ=environ)
    count = min(wanted.limit, PAGE_RUNS)
    found = services.ledger.read(lambda tx: _find_runs(tx, wanted, count + 1))
    if not found and wanted.before is None:
        raise NotFound(f"pipeline {wanted.pipeline} has no run to compare with")
    now = services.clock.now()
    rows = [_compare(services, running, changed, row, now) for row in found[:count]]
    last = found[count - 1] if len(found) > count else None
    # A value that is public now may have been a secret, and the reverse.
    redactor = Redactor(running.loaded.secrets | changed.loaded.secrets)
    page: Document = redactor.document(
        {"pipeline": wanted.pipeline, "config": str(path), "runs": rows}
    )
    return {
        **page,
        "cursor": None if last is None else f"{last['created_at']}_{last['id']}",
    }


def _find_runs(tx: Tx, wanted: RunComparison, limit: int) -> list[dict[str, Any]]:
    if wanted.run is not None:
        row = runs.find_run(tx, wanted.run)
        if row is None or row["pipeline"] != wanted.pipeline:
            raise NotFound(f"there is no run {wanted.run} of pipeline {wanted.pipeline}")
        return [row]
    return runs.list_runs(
        tx,
        pipeline=wanted.pipeline,
        status=None,
        since=wanted.since,
        until=None,
        before=wanted.before,
        limit=limit,
    )


def _compare(
    services: Services,
    running: CompiledConfig,
    changed: CompiledConfig,
    row: Mapping[str, Any],
    now: datetime,
) -> Document:
    shown: Document = {"run_id": row["id"], "status": runs.SHOWN[row["status"]].value}

    def load_run(tx: Tx) -> tuple[RecordedRun | str, bool]:
        recorded = _load_run(tx, row["id"], row["pipeline"])
        if isinstance(recorded, str):
            return recorded, True
        first, current = recorded.steps[0].job.id, running.loaded.config_hash
        return recorded, tx.one("started_under", id=first, config_hash=current) is not None

    run, is_exact = services.ledger.read(load_run)
    if isinstance(run, str):
        return {**shown, "verdict": "not_compared", "reason": run}
    before, after = (
        replay(
            run,
            compiled.tx_config.router,
            {name: plan.config for name, plan in compiled.plans.items()},
            now,
        )
        for compiled in (running, changed)
    )
    notes = [] if is_exact else ["the run was recorded under another configuration"]
    return {**shown, **_compare_replays(before, after, notes)}


def _compare_replays(before: ReplayedRun, after: ReplayedRun, notes: list[str]) -> Document:
    steps = _compare_steps(before, after)
    children = {
        "children_added": sorted((after.children - before.children).elements()),
        "children_removed": sorted((before.children - after.children).elements()),
    }
    is_same = not steps and not any(children.values()) and before.refusal == after.refusal
    unknown = sorted(
        place[0]
        for place, step in after.steps.items()
        if step.status == "unknown" and place not in before.steps
    )
    if unknown:
        names = ", ".join(unknown)
        notes = [*notes, f"nothing is recorded of {names}; what follows is not known"]
    return {
        "verdict": "identical" if is_same else "different",
        "refusal": after.refusal if before.refusal is None else None,
        "steps": steps,
        **children,
        "notes": notes,
    }


def _load_run(tx: Tx, run_id: str, pipeline: str) -> RecordedRun | str:
    """The run, or why it cannot be replayed."""
    rows = runs.list_steps(tx, run_id, limit=MAX_STEPS + 1, max_bytes=MIB, tail=0)
    if not rows:
        return "nothing of the run is recorded: it was skipped, or is past its retention"
    if len(rows) > MAX_STEPS:
        return f"it has more than {MAX_STEPS} steps"
    steps = []
    for row in rows:
        job = read.load_job(tx, row["job_id"])
        if job is None or job.flaw is not None:
            return f"job {row['job_id']} of the run cannot be read"
        steps.append(RecordedStep(job, row["result"]))
    first = steps[0].job
    context = tx.one("context", id=first.entered_context_id or "")
    return RecordedRun(run_id, pipeline, orjson.loads(context[0]) if context else {}, steps)


def _compare_steps(before: ReplayedRun, after: ReplayedRun) -> list[Document]:
    """The steps that differ, in the order in which they are reached."""
    rows: list[Document] = []
    for place in dict.fromkeys((*after.steps, *before.steps)):
        was, will = before.steps.get(place), after.steps.get(place)
        present = will or was
        assert present is not None
        name = place[0].removesuffix(SWITCH_SUFFIX)
        shown: Document = {"step": name, "branch": place[1] or None, "plugin": present.plugin}
        if name != place[0]:
            if before.refusal or after.refusal:
                continue
            # The `if` of a step, which is a step of its own.
            sides = [ABSENT if each is None else each.input for each in (was, will)]
            differences = [*find_differences(sides[0], sides[1], "if")]
        elif was is None or will is None:
            change = "would run" if was is None else "would not run"
            rows.append({**shown, "change": change, "differences": []})
            continue
        else:
            differences = [
                *find_differences(was.plugin, will.plugin, "plugin"),
                *find_differences(
                    hide_secret_keys(was.input), hide_secret_keys(will.input), "input"
                ),
            ]
        if was is not None and will is not None:
            differences += find_differences(was.reason, will.reason, "fails")
        if differences:
            described = [describe_difference(each) for each in differences[:MAX_DIFFERENCES]]
            rows.append({**shown, "change": "changed", "differences": described})
    return rows
