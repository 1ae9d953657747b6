"""Tools that act on jobs, runs, deliveries, pauses and approvals."""

from __future__ import annotations

from ductile.core.jobs.state_machine import ENDED
from ductile.core.values.suggest import nearest
from ductile.errors import DuctileError, UsageError
from ductile.http.mcp.results import Json, fetch_page, mark, pick, shorten
from ductile.http.mcp.route_caller import RouteError
from ductile.http.mcp.tool import GatewayTool, ToolCall, ToolRefusal
from ductile.http.mcp.tools.observe import NUMBER, TEXT, word_of

DRY_RUN: Json = {"type": "boolean"}
EXPECTED: Json = {"type": "integer", "description": "the count of the dry run"}
FILTER: Json = {
    "type": "object",
    "description": "of many: plugin, command, status, before, acknowledged",
}
SHOWN_IDS = 20
OUTCOME = (
    "job_id",
    "status",
    "plugin",
    "command",
    "attempt",
    "max_attempts",
    "next_retry_at",
    "last_error",
    "result",
    "waits_for",
)


async def run(call: ToolCall) -> Json:
    kind = call.choose("plugin", "pipeline")
    body = {**call.only("payload", "dedupe_key"), "dry_run": call.dry_run}
    try:
        if kind == "pipeline":
            return await _run_pipeline(call, body)
        return await _run_command(call, body)
    except RouteError as error:
        raise await _with_nearest(call, error) from None


async def _run_command(call: ToolCall, body: Json) -> Json:
    if "command" not in call.given:
        name = call["plugin"]
        raise UsageError(
            "run needs the command of the plugin", fix=f"find {{name: {name!r}}} shows its commands"
        )
    started = await call.act(
        "/plugin/{plugin}/{command}",
        body=body,
        key=call.get("idempotency_key"),
        plugin=call["plugin"],
        command=call["command"],
    )
    if call.dry_run:
        return {**started, "done": False}
    if not call.get("wait_s") or started["status"] in ENDED:
        return {**started, "done": started["status"] in ENDED}
    try:
        found = await call.read(
            "/job/{job_id}", query={"wait": call.wait()}, job_id=str(started["job_id"])
        )
    except DuctileError as error:
        return _not_followed(started, error)
    return shorten({**mark(pick(found, *OUTCOME)), "done": found["status"] in ENDED})


async def _run_pipeline(call: ToolCall, body: Json) -> Json:
    started = await call.act(
        "/pipeline/{name}",
        body=body,
        query={"async": True},
        key=call.get("idempotency_key"),
        name=call["pipeline"],
    )
    if call.dry_run:
        return shorten({**mark(started), "done": False})
    run_id = str(started["instance_id"])
    shown = {**pick(started, "job_id", "pipeline", "status", "deduplicated"), "run_id": run_id}
    if not call.get("wait_s"):
        return {**shown, "done": False}
    query = {"wait": call.wait()}
    try:
        found = await call.read("/pipeline-instance/{instance_id}", query=query, instance_id=run_id)
    except DuctileError as error:
        return _not_followed(shown, error)
    ended = bool(found["tree_ended"])
    steps = [mark(pick(job, "step", "job_id", "status", "last_error")) for job in found["jobs"]]
    status = found["status"] if ended else "running"
    more = mark(pick(found, "reason", "result"))
    return shorten({**shown, "status": status, "done": ended, "steps": steps[:20], **more})


def _not_followed(started: Json, error: DuctileError) -> Json:
    """What was started, although its end cannot be read: the start is committed, and a refusal
    would make the caller start it again."""
    return shorten({**started, "done": False, "note": f"queued; not followed: {error.message}"})


async def _with_nearest(call: ToolCall, error: RouteError) -> RouteError:
    """Add the name that the caller probably means to the refusal of an unknown one."""
    known = error.details.keys() & {"nearest", "run"}
    if error.http_status not in (400, 404) or known:
        return error
    names = {str(skill["name"]) for skill in (await call.read("/skills"))["skills"]}
    wanted = call.get("pipeline") or f"{call['plugin']}.{call.get('command', '')}"
    close = nearest(wanted, names)
    if close is not None and wanted not in names:
        error.details["nearest"] = close
    return error


def _check_preview(call: ToolCall) -> None:
    if not call.dry_run and "expected" not in call.given:
        raise ToolRefusal(
            "preview_needed",
            "an action on many needs `expected`, the count that its dry run returned",
        )


def _bulk_body(call: ToolCall, limit: int) -> Json:
    _check_preview(call)
    if not isinstance(call["filter"], dict) or not call["filter"]:
        raise UsageError(
            "filter must name at least one of plugin, command, status, before",
            fix='pass filter as {filter: {"plugin": "NAME", "status": "dead"}}',
        )
    return {
        "filter": call["filter"],
        "limit": limit,
        "dry_run": call.dry_run,
        **call.only("expected"),
    }


def _show_bulk(done: Json, dry_run: bool) -> Json:
    ids = done.get("jobs") or done.get("deliveries") or []
    return shorten(
        {
            "count": done["count"],
            "dry_run": dry_run,
            "done": not dry_run,
            "ids": ids[:SHOWN_IDS],
            "more": done.get("more", False),
            "refused": [mark(row) for row in done.get("refused", [])][:10],
        }
    )


async def retry(call: ToolCall) -> Json:
    what = call.choose("job_id", "run_id", "filter", "delivery_id", "deliveries")
    key, body = call.get("idempotency_key"), {"dry_run": call.dry_run}
    if what == "filter":
        done = await call.act("/jobs/retry", body=_bulk_body(call, 1000), key=key)
        return _show_bulk(done, call.dry_run)
    if what == "deliveries":
        _check_preview(call)
        many = {"status": call["deliveries"], **call.only("since", "expected"), **body}
        return _show_bulk(await call.act("/gateway/deliveries/retry", body=many), call.dry_run)
    if what == "delivery_id":
        id = str(call["delivery_id"])
        done = await call.act("/gateway/deliveries/{delivery_id}/retry", body=body, delivery_id=id)
    elif what == "run_id":
        done = await call.act(
            "/pipeline-runs/{run_id}/retry", body=body, key=key, run_id=call["run_id"]
        )
    else:
        done = await call.act("/job/{job_id}/retry", body=body, key=key, job_id=call["job_id"])
    # It is queued again, which is not the end of it.
    return shorten({**done, "dry_run": call.dry_run, "done": False})


async def cancel(call: ToolCall) -> Json:
    what, body = call.choose("job_id", "run_id", "filter"), {"dry_run": call.dry_run}
    if what == "filter":
        done = await call.act("/jobs/cancel", body=_bulk_body(call, 1000))
        return _show_bulk(done, call.dry_run)
    if what == "run_id":
        path = "/pipeline-runs/{run_id}/cancel"
        done = await call.act(path, body=body, run_id=call["run_id"])
    else:
        done = await call.act("/job/{job_id}/cancel", body=body, job_id=call["job_id"])
    return shorten({**done, "dry_run": call.dry_run, "done": not call.dry_run})


async def replay(call: ToolCall) -> Json:
    body = {**call.only("step", "payload"), "dry_run": call.dry_run}
    key = call.get("idempotency_key")
    done = await call.act("/job/{job_id}/replay", body=body, key=key, job_id=call["job_id"])
    return {**done, "dry_run": call.dry_run, "done": False}


async def pause(call: ToolCall) -> Json:
    action, kind = call["action"], call["kind"]
    body: Json = {"dry_run": call.dry_run}
    if kind != "gateway" and "name" not in call.given:
        lookup = "schedules {}" if kind == "schedule" else "find {}"
        raise UsageError(f"name the {kind}", fix=f"{lookup} lists the names")
    if action == "reset_breaker":
        if kind != "plugin":
            raise UsageError(
                "a breaker belongs to a plugin: kind must be plugin",
                fix='pass kind as {kind: "plugin"}',
            )
        done = await call.act("/system/reset/{plugin}", body=body, plugin=call["name"])
    elif kind == "schedule":
        done = await _pause_schedule(call, action, body)
    else:
        if action == "pause":
            body |= {**call.only("reason"), "duration": call.get("for")}
        if kind == "gateway":
            done = await call.act(f"/system/{action}", body=body)
        else:
            done = await call.act(f"/{kind}s/{{name}}/{action}", body=body, name=call["name"])
    return shorten(mark({**done, "dry_run": call.dry_run, "done": not call.dry_run}))


async def _pause_schedule(call: ToolCall, action: str, body: Json) -> Json:
    plugin, _, id = str(call["name"]).partition("/")
    if not id:
        raise UsageError("a schedule is named plugin/id", fix="schedules {} lists the names")
    return await call.act(
        f"/scheduler/{{plugin}}/{{schedule}}/{action}", body=body, plugin=plugin, schedule=id
    )


async def approve(call: ToolCall) -> Json:
    if "approval_id" not in call.given:
        query = {"status": "waiting", "before": call.get("cursor")}
        return await fetch_page(
            lambda limit: call.read("/approvals", query={**query, "limit": limit}),
            lambda page: {
                "approvals": [mark(row) for row in page["approvals"]],
                **({} if page["cursor"] is None else {"cursor": str(page["cursor"])}),
            },
            15,
        )
    decision = call.get("decision")
    if decision is None:
        shown = await call.read("/approvals/{approval_id}", approval_id=call["approval_id"])
        return shorten(mark(shown))
    done = await call.act(
        f"/approvals/{{approval_id}}/{decision}",
        body={**call.only("comment"), "dry_run": call.dry_run},
        key=call.get("idempotency_key"),
        approval_id=call["approval_id"],
    )
    return {**done, "dry_run": call.dry_run, "done": not call.dry_run}


ACTING = (
    GatewayTool(
        "run",
        "Queue a plugin command or start a pipeline. `done` is true only if it has ended; wait "
        "with wait_s, job or runs.",
        {
            "plugin": TEXT,
            "command": TEXT,
            "pipeline": TEXT,
            "payload": {},
            "wait_s": {"type": "number", "description": "at most 25"},
            "idempotency_key": TEXT,
            "dedupe_key": TEXT,
            "dry_run": DRY_RUN,
        },
        run,
        ("job_id", "run_id", "status", "done"),
        (("POST", "/plugin/{plugin}/{command}"), ("POST", "/pipeline/{name}")),
        also=(
            ("GET", "/job/{job_id}"),
            ("GET", "/pipeline-instance/{instance_id}"),
            ("GET", "/skills"),
        ),
        is_destructive=True,
    ),
    GatewayTool(
        "retry",
        "Queue a failed or dead job, the failed jobs of a run, or deliveries again; of many only "
        "with the count of a dry run.",
        {
            "job_id": TEXT,
            "run_id": TEXT,
            "filter": FILTER,
            "delivery_id": NUMBER,
            "deliveries": word_of("dead", "failed"),
            "since": TEXT,
            "expected": EXPECTED,
            "idempotency_key": TEXT,
            "dry_run": DRY_RUN,
        },
        retry,
        ("count", "ids", "done"),
        (
            ("POST", "/job/{job_id}/retry"),
            ("POST", "/pipeline-runs/{run_id}/retry"),
            ("POST", "/jobs/retry"),
            ("POST", "/gateway/deliveries/retry"),
            ("POST", "/gateway/deliveries/{delivery_id}/retry"),
        ),
        is_destructive=True,
    ),
    GatewayTool(
        "cancel",
        "End a job, a run, or many jobs with the count of a dry run.",
        {
            "job_id": TEXT,
            "run_id": TEXT,
            "filter": FILTER,
            "expected": EXPECTED,
            "dry_run": DRY_RUN,
        },
        cancel,
        ("count", "ids", "done"),
        (
            ("POST", "/job/{job_id}/cancel"),
            ("POST", "/pipeline-runs/{run_id}/cancel"),
            ("POST", "/jobs/cancel"),
        ),
        is_destructive=True,
        is_repeatable=True,
    ),
    GatewayTool(
        "replay",
        "Queue a new job like an ended one, or with another step or payload.",
        {
            "job_id": TEXT,
            "step": TEXT,
            "payload": {},
            "idempotency_key": TEXT,
            "dry_run": DRY_RUN,
        },
        replay,
        ("job_id", "status", "done"),
        (("POST", "/job/{job_id}/replay"),),
        required=("job_id",),
        is_destructive=True,
    ),
    GatewayTool(
        "pause",
        "Pause or resume a plugin, pipeline, schedule (plugin/id) or the gateway, or close a "
        "plugin's breakers.",
        {
            "action": word_of("pause", "resume", "reset_breaker"),
            "kind": word_of("plugin", "pipeline", "schedule", "gateway"),
            "name": TEXT,
            "reason": TEXT,
            "for": {"type": "string", "description": "such as 2h"},
            "dry_run": DRY_RUN,
        },
        pause,
        ("done",),
        (
            ("POST", "/plugins/{name}/pause"),
            ("POST", "/plugins/{name}/resume"),
            ("POST", "/pipelines/{name}/pause"),
            ("POST", "/pipelines/{name}/resume"),
            ("POST", "/system/pause"),
            ("POST", "/system/resume"),
            ("POST", "/scheduler/{plugin}/{schedule}/pause"),
            ("POST", "/scheduler/{plugin}/{schedule}/resume"),
            ("POST", "/system/reset/{plugin}"),
        ),
        required=("action", "kind"),
        is_destructive=True,
    ),
    GatewayTool(
        "approve",
        "List what pipelines wait for; with approval_id show it; with decision decide it.",
        {
            "approval_id": TEXT,
            "decision": word_of("approve", "reject"),
            "comment": TEXT,
            "idempotency_key": TEXT,
            "cursor": TEXT,
            "dry_run": DRY_RUN,
        },
        approve,
        ("approvals", "status", "done"),
        (
            ("GET", "/approvals"),
            ("GET", "/approvals/{approval_id}"),
            ("POST", "/approvals/{approval_id}/approve"),
            ("POST", "/approvals/{approval_id}/reject"),
        ),
        is_destructive=True,
        is_repeatable=True,
    ),
)
