"""Tools that look and change nothing."""

from __future__ import annotations

from ductile.core.values.suggest import nearest
from ductile.http.mcp.results import Json, fetch_page, mark, pick, shorten, slice_rows
from ductile.http.mcp.route_caller import RouteError
from ductile.http.mcp.tool import GatewayTool, ToolCall
from ductile.http.mcp.tools.jobs import JOB_ROW, job, jobs, next_cursor, runs

TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "integer"}


async def overview(call: ToolCall) -> Json:
    page = await call.read("/system/overview")
    parts: Json = {
        **pick(page, "at", "name", "version", "queue", "alerts"),
        "open_breakers": page["breakers"],
        "held_plugins": page["held"],
        "running": [pick(row, "job_id", "plugin", "command") for row in page["running"]][:6],
        "next_fires": page["next"][:4],
    }
    try:
        parts["failures"] = await _failures(call)
    except RouteError as error:
        parts["failures_hidden"] = f"not visible: {error.message}"
    for name, read in (
        ("schedules_not_firing", _idle_schedules(call)),
        ("paused", _pauses(call)),
        ("dead_deliveries", _dead_deliveries(call)),
        ("waiting_approvals", _approvals(call)),
    ):
        try:
            parts[name] = await read
        except RouteError as error:
            parts[name] = f"not visible: {error.message}"
    return shorten(mark(parts))


async def _failures(call: ToolCall) -> list[Json]:
    rows = (await call.read("/jobs/failures"))["failures"]
    return [pick(row, "jobs", *JOB_ROW) for row in rows][:8]


async def _idle_schedules(call: ToolCall) -> list[Json]:
    rows = (await call.read("/scheduler/jobs"))["schedules"]
    # One that waits for its window is active, and one that fires once has done its work.
    idle = [row for row in rows if row["state"] not in ("active", "exhausted")]
    idle += [row for row in rows if row["state"] == "active" and not row["next_run"]]
    return [pick(row, "plugin", "schedule", "state", "reason") for row in idle][:8]


async def _pauses(call: ToolCall) -> list[Json]:
    return list((await call.read("/pauses"))["pauses"])[:8]


async def _dead_deliveries(call: ToolCall) -> Json:
    page = await call.read("/gateway/deliveries", query={"status": "dead", "limit": 5})
    rows = page["deliveries"]
    some = [pick(row, "delivery_id", "webhook_id", "error_detail") for row in rows]
    return {"newest": some, "more": page["cursor"] is not None} if rows else {}


async def _approvals(call: ToolCall) -> list[Json]:
    page = await call.read("/approvals", query={"status": "waiting", "limit": 5})
    return [
        pick(row, "id", "approval_id", "pipeline", "step", "due_at") for row in page["approvals"]
    ]


async def find(call: ToolCall) -> Json:
    if "name" in call.given:
        return shorten(mark(await _find_one(call, call["name"])))
    skills = (await call.read("/skills"))["skills"]
    word = str(call.get("query", "")).casefold()
    rows = [
        pick(skill, "name", "kind", "type", "description")
        for skill in skills
        if word in f"{skill['name']} {skill['description']}".casefold()
    ]
    if call.get("kind"):
        rows = [row for row in rows if row["kind"] == call["kind"]]
    return slice_rows("found", [mark(row) for row in rows], call.get("cursor"))


async def _find_one(call: ToolCall, name: str) -> Json:
    """Return a plugin with its commands and schemas, or a pipeline with its steps."""
    plugins = {row["name"] for row in (await call.read("/plugins"))["plugins"]}
    if name in plugins:
        return {"plugin": await call.read("/plugin/{plugin}", plugin=name)}
    pipelines = {row["name"] for row in (await call.read("/pipelines"))["pipelines"]}
    if name in pipelines:
        found = await call.read("/pipeline/{name}", name=name)
        kept = {key: value for key, value in found.items() if key != "mermaid"}
        return {"pipeline": kept}
    close = nearest(name, plugins | pipelines)
    raise RouteError(
        404,
        {"error": f"there is no plugin or pipeline {name!r}", "code": "not_found"}
        | ({"nearest": close} if close else {}),
    )


async def schedules(call: ToolCall) -> Json:
    page = await call.read("/scheduler/jobs")
    if "name" not in call.given:
        return slice_rows("schedules", [mark(row) for row in page["schedules"]], call.get("cursor"))
    name = call["name"]
    own = [row for row in page["schedules"] if name in (row["plugin"], _full_name(row))]
    query = {"name": name, "since": call.get("since")}
    slots = (await call.read("/scheduler/explain", query=query))["slots"]
    keys = ("slot", "fired", "job_id", "status", "why")
    rows = [mark(pick(slot, *keys)) for slot in reversed(slots)]
    fires = await call.read("/scheduler/next", query={"name": name, "count": 3})
    return slice_rows(
        "occurrences",
        rows,
        call.get("cursor"),
        schedules=[mark(row) for row in own][:4],
        next_fires=[pick(fire, "fires_at", "exact") for fire in fires["fires"]],
    )


def _full_name(row: Json) -> str:
    return f"{row['plugin']}/{row['schedule']}"


async def deliveries(call: ToolCall) -> Json:
    what = call.get("what", "deliveries")
    if what == "deliveries":
        filters = call.only("status", "webhook_id", "since")
        filters["before"] = call.get("cursor")
        return await fetch_page(
            lambda limit: call.read("/gateway/deliveries", query={**filters, "limit": limit}),
            lambda page: {
                "deliveries": [mark(row) for row in page["deliveries"]],
                **next_cursor(page),
            },
            call.limit(),
        )
    path, name = {
        "webhooks": ("/gateway/webhook-configs", "webhooks"),
        "agents": ("/gateway/heartbeats", "agents"),
        "reminders": ("/gateway/cron", "reminders"),
    }[what]
    page = await call.read(path)
    rows = next(value for value in page.values() if isinstance(value, list))
    return slice_rows(name, [mark(row) for row in rows], call.get("cursor"))


async def audit(call: ToolCall) -> Json:
    filters = call.only("action", "since")
    if "token" in call.given:
        filters["actor"] = f"token:{call['token']}"
    filters["before"] = call.get("cursor")
    return await fetch_page(
        lambda limit: call.read("/audit", query={**filters, "limit": limit}),
        lambda page: {"entries": [mark(row) for row in page["entries"]], **next_cursor(page)},
        call.limit(),
    )


def word_of(*members: str) -> Json:
    return {"type": "string", "enum": list(members)}


LIST: Json = {"cursor": TEXT, "limit": NUMBER}
JOB_STATUS = word_of("queued", "running", "succeeded", "failed", "dead", "skipped")

OBSERVING = (
    GatewayTool(
        "overview",
        "What needs attention now: failures, open breakers, held or paused work, schedules that do "
        "not fire, dead deliveries, approvals.",
        {},
        overview,
        ("queue", "failures", "open_breakers"),
        (("GET", "/system/overview"),),
        also=(
            ("GET", "/jobs/failures"),
            ("GET", "/scheduler/jobs"),
            ("GET", "/pauses"),
            ("GET", "/gateway/deliveries"),
            ("GET", "/approvals"),
        ),
    ),
    GatewayTool(
        "find",
        "List plugin commands and pipelines, or with `name` show one with its schemas, steps and "
        "places in the files.",
        {"query": TEXT, "kind": word_of("command", "pipeline"), "name": TEXT, "cursor": TEXT},
        find,
        ("found", "plugin", "pipeline"),
        (("GET", "/skills"), ("GET", "/plugins")),
        also=(
            ("GET", "/plugin/{plugin}"),
            ("GET", "/pipelines"),
            ("GET", "/pipeline/{name}"),
        ),
    ),
    GatewayTool(
        "jobs",
        "List jobs, newest first.",
        {
            "status": JOB_STATUS,
            "plugin": TEXT,
            "command": TEXT,
            "pipeline": TEXT,
            "since": TEXT,
            "until": TEXT,
            **LIST,
        },
        jobs,
        ("jobs", "cursor"),
        (("GET", "/jobs"),),
    ),
    GatewayTool(
        "job",
        "Show a job: state, why, error, result; in pages its log, or its bundle for `job rerun`; "
        "its tree.",
        {
            "job_id": TEXT,
            "part": word_of("summary", "log", "tree", "bundle"),
            "attempt": NUMBER,
            "wait_s": {"type": "number", "description": "at most 25"},
            "cursor": TEXT,
        },
        job,
        ("job_id", "status", "done"),
        (
            ("GET", "/job/{job_id}"),
            ("GET", "/job/{job_id}/tree"),
            ("GET", "/job-logs"),
        ),
        also=(("GET", "/job/{job_id}/why"), ("GET", "/job/{job_id}/bundle")),
        required=("job_id",),
    ),
    GatewayTool(
        "runs",
        "List pipeline runs, show the steps of one, or `compare` past ones with the files.",
        {
            "run_id": TEXT,
            "pipeline": TEXT,
            "status": word_of("running", "succeeded", "failed", "skipped"),
            "since": TEXT,
            "compare": {"type": "boolean"},
            "wait_s": {"type": "number"},
            **LIST,
        },
        runs,
        ("runs", "steps", "done", "cursor"),
        (("GET", "/pipeline-runs"), ("GET", "/pipeline-runs/{run_id}")),
        also=(("GET", "/pipelines/{name}/compare"),),
    ),
    GatewayTool(
        "schedules",
        "List schedules, or with `name` (plugin or plugin/id) why each occurrence fired or not.",
        {"name": TEXT, "since": TEXT, "cursor": TEXT},
        schedules,
        ("schedules", "occurrences"),
        (("GET", "/scheduler/jobs"),),
        also=(("GET", "/scheduler/explain"), ("GET", "/scheduler/next")),
    ),
    GatewayTool(
        "deliveries",
        "List webhook deliveries, webhooks, agents or reminders.",
        {
            "what": word_of("deliveries", "webhooks", "agents", "reminders"),
            "status": word_of("pending", "failed", "dead", "delivered"),
            "webhook_id": NUMBER,
            "since": TEXT,
            **LIST,
        },
        deliveries,
        ("deliveries", "webhooks", "agents", "reminders", "cursor"),
        (
            ("GET", "/gateway/deliveries"),
            ("GET", "/gateway/webhook-configs"),
            ("GET", "/gateway/heartbeats"),
            ("GET", "/gateway/cron"),
        ),
    ),
    GatewayTool(
        "audit",
        "Who did what, newest first; with `token` what that token did.",
        {"token": TEXT, "action": TEXT, "since": TEXT, **LIST},
        audit,
        ("entries", "cursor"),
        (("GET", "/audit"),),
    ),
)
