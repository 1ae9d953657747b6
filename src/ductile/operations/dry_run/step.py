"""Runs one step again in a sandbox, with the input of an earlier job; nothing is committed."""

from __future__ import annotations

from dataclasses import replace

import orjson

from ductile.core.jobs.judge import judge
from ductile.core.jobs.prepare import Entered, Ready, Unrunnable, prepare
from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.pipelines.pipeline import Pipeline
from ductile.core.pipelines.step_io import (
    Switched,
    entered_dedupe_key,
    entered_payload,
    judge_switch,
    prepare_relay,
)
from ductile.core.values.redact import hide_secret_keys
from ductile.core.waits.begin import begin_wait
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.services import Services
from ductile.errors import NotFound, Refused
from ductile.model import Job, Json, Settlement
from ductile.operations import jobs
from ductile.operations.dry_run.pipeline import (
    Document,
    describe_relay,
    describe_settlement,
    describe_wait_step,
    run_once,
)
from ductile.operations.dry_run.sandbox import files_below, sandbox
from ductile.operations.job_tree import added
from ductile.operations.plan.summary import compare_names
from ductile.store.engines.api import Tx
from ductile.store.jobs import plugin_state, read
from ductile.store.jobs.read import JobFilter

PAGE, MOST_PAGES = 1000, 50
"""Limits of the search for the newest job of a step."""


def step(gateway: Services, pipeline: Pipeline, path: str, job_id: str | None) -> Document:
    """Run one step again in a sandbox, with the input of that job, or of its newest job.

    The ledger is only read. The process is real, and so are its effects outside its directory.
    """
    compiled, name, node = gateway.compiled, pipeline.name, pipeline.nodes[path]
    if node.kind is NodeKind.SPLIT:
        inside = ", ".join(branch.entry for branch in node.branches)
        raise Refused(f"step {path} of pipeline {name} is a split; run one of its steps: {inside}")

    def find_job(tx: Tx) -> Job:
        known = _newest(tx, node) if job_id is None else jobs.find_step_job(tx, job_id, path)
        return jobs.load_job(tx, known)

    job = gateway.ledger.read(find_job)
    if job.pipeline != name:
        raise Refused(f"job {job.id} is step {path} of pipeline {job.pipeline}, not of {name}")
    lost = compiled.tx_config.router.lost(name, path, job.plugin, job.command)
    if lost is not None:
        raise Refused(lost)
    header = {"dry_run": True, "pipeline": name, "step": path, "job_id": job.id}
    if node.kind is NodeKind.USES:
        return {**header, **_run(gateway, job, node)}
    context = _context(gateway, job)
    payload = entered_payload(job.command, job.payload)
    if node.kind is NodeKind.RELAY:
        key = entered_dedupe_key(job.payload)
        sent = prepare_relay(node, payload, key, context, hops=job.hops)
        return {**header, **describe_relay(sent)}
    if node.kind is NodeKind.WAIT:
        now = gateway.clock.now()
        begun = begin_wait(node, payload, context, now, hops=job.hops, wait_id=job.id)
        return {**header, **describe_wait_step(begun)}
    guarded = compiled.plans.get(node.config_of or "")
    config = orjson.loads(guarded.config) if guarded else {}
    judged = judge_switch(node, payload, context, config, hops=job.hops)
    verdict = judged.result if isinstance(judged, Switched) else {"fails": judged.reason}
    return {**header, "if": str(node.condition), **verdict}


def _newest(tx: Tx, node: Node) -> str:
    """The newest job of this step."""
    wanted = JobFilter(plugin=node.plugin, command=node.command)
    before, among = None, ""
    for _ in range(MOST_PAGES):
        rows = read.list_jobs(tx, wanted, before=before, limit=PAGE)
        for row in rows:
            if (row["pipeline"], row["step_path"]) == (node.pipeline, node.path):
                return str(row["id"])
        if len(rows) < PAGE:
            break
        before = rows[-1]["seq"]
    else:
        among = f" among the newest {MOST_PAGES * PAGE} of {node.plugin}"
    raise NotFound(
        f"there is no job of step {node.path} of pipeline {node.pipeline}{among} to run again; "
        "give a payload to see what would run"
    )


def _context(gateway: Services, job: Job) -> dict[str, Json]:
    row = gateway.ledger.read(lambda tx: tx.one("context", id=job.entered_context_id or ""))
    return orjson.loads(row[0]) if row else {}


def _run(gateway: Services, job: Job, node: Node) -> Document:
    compiled = gateway.compiled
    plan = compiled.plans.get(job.plugin)
    if plan is None:
        raise Refused(f"plugin {job.plugin} is not loaded")
    context = _context(gateway, job)
    known = gateway.ledger.read(lambda tx: plugin_state.load_state_text(tx, job.plugin))
    attempt = replace(job, id=gateway.entropy.uuid(), attempt=1)
    with sandbox(gateway, job) as (box, source):
        before = files_below(box)
        ready = prepare(attempt, known, context, plan, node, gateway.clock.now(), str(box))
        if isinstance(ready, Unrunnable):
            return {"status": "failed", "error": ready.reason}
        outcome = run_once(ready)
        files = compare_names(before, files_below(box))
    settlement = judge(
        attempt,
        outcome,
        compiled.rules(job.plugin, job.command),
        gateway.clock.now(),
        gateway.entropy.uniform(),
        None,
        ready.entered,
        gateway.entropy.uuid(),
    )
    about = {
        "directory": str(box),
        "cloned_from": source and str(source),
        "gone": compiled.workspaces.describe_missing_files(job),
        "files": files,
    }
    return {"sandbox": about, **_describe(compiled, ready, settlement)}


def _describe(compiled: CompiledConfig, ready: Ready, settlement: Settlement) -> Document:
    shown = compiled.redactor.document
    request = orjson.loads(ready.launch.request)
    return {
        **describe_settlement(compiled, settlement),
        "request": shown({k: v for k, v in request.items() if k not in ("config", "state")}),
        "then": settlement.status.value,
        "state_updates": shown(hide_secret_keys(dict(settlement.state_updates or {}))),
        "baggage_added": shown(_baggage(ready.entered)),
    }


def _baggage(entered: Entered) -> Document:
    return added(entered.inherited or {}, entered.accumulated or {})
