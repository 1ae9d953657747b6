"""Tools that show jobs and runs."""

from __future__ import annotations

from typing import Any

from ductile.core.jobs.state_machine import ENDED
from ductile.errors import UsageError
from ductile.http.mcp.results import (
    Json,
    fetch_page,
    mark,
    pick,
    render,
    shorten,
    slice_rows,
    slice_text,
)
from ductile.http.mcp.tool import ToolCall

LARGEST_BUNDLE = 128 * 1024
"""Characters. Each page of a bundle is cut out of the whole, which is made again."""
JOB_ROW = (
    "job_id",
    "plugin",
    "command",
    "status",
    "attempt",
    "max_attempts",
    "created_at",
    "next_retry_at",
    "pipeline",
    "step_path",
    "last_error",
)
STEP_ROW = (
    "step",
    "status",
    "reason",
    "job_id",
    "plugin",
    "command",
    "attempt",
    "last_error",
    "payload",
    "result",
    "log_tail",
)
RUN_ROW = (
    "instance_id",
    "pipeline",
    "status",
    "trigger",
    "started_at",
    "ended_at",
    "root_job_id",
    "failed_step",
    "failed_job_id",
    "reason",
)


async def jobs(call: ToolCall) -> Json:
    filters = call.only("status", "plugin", "pipeline", "command", "since", "until")
    filters["before"] = call.get("cursor")
    return await fetch_page(
        lambda limit: call.read("/jobs", query={**filters, "limit": limit}),
        lambda page: {
            "jobs": [mark(pick(row, *JOB_ROW)) for row in page["jobs"]],
            **next_cursor(page),
        },
        call.limit(),
    )


def next_cursor(page: Json) -> Json:
    return {} if page.get("cursor") is None else {"cursor": str(page["cursor"])}


async def job(call: ToolCall) -> Json:
    part, job_id = call.get("part", "summary"), call["job_id"]
    if part == "log":
        return await _job_log(call, job_id)
    if part == "tree":
        rows = (await call.read("/job/{job_id}/tree", query={"flat": True}, job_id=job_id))["jobs"]
        shown = [mark(pick(row, *JOB_ROW)) for row in rows]
        return slice_rows("jobs", shown, call.get("cursor"), job_id=job_id)
    if part == "bundle":
        document = await call.read("/job/{job_id}/bundle", job_id=job_id)
        text = render(document)
        if len(text) > LARGEST_BUNDLE:
            raise UsageError(
                f"the bundle has {len(text)} characters; an operator writes it to a file: "
                f"ductile job bundle {job_id} -o job.json"
            )
        # The time of this page, which has always the same length.
        version = render({**document, "made_at": None})
        return slice_text("bundle", text, call.get("cursor"), version=version, job_id=job_id)
    found = await call.read("/job/{job_id}", query={"wait": call.wait()}, job_id=job_id)
    why = await call.read("/job/{job_id}/why", job_id=job_id)
    more = ("submitter", "completed_at", "payload", "waits_for", "instance_id", "progress")
    last = found["attempts"][-1] if found["attempts"] else {}
    return shorten(
        {
            **mark({**pick(found, *JOB_ROW, *more), "result": found["result"]}),
            "done": found["status"] in ENDED,
            "untrusted_why": why["why"],
            # It may quote the name of an event that the plugin has sent.
            **({"untrusted_run": why["run"]} if why["run"] else {}),
            **mark({"log_tail": (last.get("stderr") or "")[-800:]}),
        }
    )


async def _job_log(call: ToolCall, job_id: str) -> Json:
    query = {"job_id": job_id, "limit": 20, "include_result": True}
    rows = (await call.read("/job-logs", query=query))["logs"]
    wanted = call.get("attempt")
    found = [row for row in rows if wanted is None or row["attempt"] == wanted]
    if not found:
        await call.read("/job/{job_id}", job_id=job_id)  # Says that there is no such job.
        return {"job_id": job_id, "attempts": [row["attempt"] for row in rows]}
    row = found[0]
    text = "\n".join(
        f"[{name}]\n{row[name] if isinstance(row[name], str) else _lines(row[name])}"
        for name in ("last_error", "stderr", "stdout", "logs")
        if row[name]
    )
    about = pick(row, "job_id", "attempt", "status", "started_at", "completed_at", "node")
    about["attempts"] = [each["attempt"] for each in rows]
    return slice_text("log", text, call.get("cursor"), **about)


def _lines(logs: Any) -> str:
    rows = logs if isinstance(logs, list) else [logs]
    return "\n".join(
        f"{row.get('level')}: {row.get('message')}" if isinstance(row, dict) else str(row)
        for row in rows
    )


async def runs(call: ToolCall) -> Json:
    if call.get("compare"):
        return await _compare_runs(call)
    if "run_id" in call.given:
        return await _run(call, call["run_id"])
    filters = call.only("status", "pipeline", "since")
    filters["before"] = call.get("cursor")
    return await fetch_page(
        lambda limit: call.read("/pipeline-runs", query={**filters, "limit": limit}),
        lambda page: {
            "runs": [mark(pick(row, *RUN_ROW)) for row in page["runs"]],
            **next_cursor(page),
        },
        call.limit(),
    )


async def _compare_runs(call: ToolCall) -> Json:
    if "pipeline" not in call.given:
        fix = 'find {kind: "pipeline"} lists the pipelines'
        raise UsageError("name the pipeline whose runs to compare", fix=fix)
    query = {"since": call.get("since"), "run": call.get("run_id"), "before": call.get("cursor")}
    return await fetch_page(
        lambda limit: call.read(
            "/pipelines/{name}/compare", query={**query, "limit": limit}, name=call["pipeline"]
        ),
        lambda page: {"runs": [mark(row) for row in page["runs"]], **next_cursor(page)},
        call.limit(),
    )


async def _run(call: ToolCall, run_id: str) -> Json:
    query = {"wait": call.wait()}
    found = await call.read("/pipeline-runs/{run_id}", query=query, run_id=run_id)
    steps = [mark(pick(step, *STEP_ROW)) for step in found["steps"]]
    about = {**mark(pick(found, *RUN_ROW)), "done": found["status"] != "running"}
    return slice_rows("steps", steps, call.get("cursor"), **about)
