"""What each route answers with when it does as it is asked, and how it may refuse."""

from __future__ import annotations

from ductile.http.openapi.notation import Schema, fields, kind

_ROOT = "name: text\nversion: text\nuptime_seconds: int\nlinks: {text}"
_HEALTH = """
status: ok|error
version?: text
uptime_seconds?: int
queue_depth?: int - Jobs that wait.
plugins_loaded?: int
plugins_circuit_open?: int - Plugins with a breaker that is not closed.
error?: text - What is amiss.
code?: text
"""
_STATUS = """
version: text
boot: text
uptime_seconds: int
workers: int
ledger: object
queue_depth: int
running: int
plugins: [Plugin]
"""
_QUEUED = """
job_id: text
status: text
plugin: text
command: text
deduplicated: flag - The job existed already; its id is told.
"""
_STARTED = """
job_id: text?
instance_id: text
status: queued|running|skipped
pipeline: text
deduplicated: flag
timeout_exceeded?: flag - A synchronous one that goes on without its caller.
"""
_ENDED = """
job_id: text?
status: text
duration_ms: number
result: any - The whole response of the last step.
tree: any - As `GET /job/{job_id}/tree` has it.
"""
_RETRIED = "job_id: text\nstatus: JobStatus\nattempt: int\nmax_attempts: int"
_REPLAYED = "job_id: text?\nreplay_of: text\nstatus: text"
_MANY = """
jobs: [text] - Those that it was done to.
count: int
refused: [object] - Those that it could not be done to, each with an error and a code.
more: flag - There may be more of them than the limit allowed.
dry_run?: flag
"""
_SUMMARY = """
since: time
window: text
total: {int} - Attempts by status, over all plugins.
plugins: [AttemptCount]
"""
_QUEUE = """
queued: int
running: int
plugins: [QueueCount]
"""
_CONFIG = """
config: object - Every key with its value or default; secrets are [REDACTED].
config_hash: text
snapshot_id: text?
compiled_routes: object - By pipeline: its source, its condition and its steps.
routes: [object]
warnings: [text]
"""
_SKILL = "skills: [object] - Commands and pipelines, each with method, path and schemas."
_DOCUMENT = "openapi: text\ninfo: object\npaths: object"
_DONE_TO = "id: any\nwas: text\nstatus?: text"

Results = dict[int, tuple[str, Schema]]
OBJECT = kind("object")


def _page(name: str, of: str, cursor: str = "any") -> Schema:
    return fields(f"{name}: [{of}]\ncursor: {cursor} - For the next page; null on the last one.")


def _ok(schema: Schema | str, text: str = "The answer.") -> Results:
    return {200: (text, fields(schema) if isinstance(schema, str) else schema)}


def _taken(schema: Schema | str, text: str = "Durably taken in.") -> Results:
    would = ("With `dry_run`: what would be done.", OBJECT)
    return {202: (text, fields(schema) if isinstance(schema, str) else schema), 200: would}


RESULTS: dict[tuple[str, str], Results] = {
    ("GET", "/"): _ok(_ROOT),
    ("GET", "/healthz"): {
        **_ok(_HEALTH, "It is well."),
        503: ("The ledger does not answer, or cannot be trusted.", fields(_HEALTH)),
    },
    ("GET", "/system/status"): _ok(_STATUS),
    ("GET", "/plugins"): _ok("plugins: [Plugin]"),
    ("POST", "/plugin/{plugin}/{command}"): _taken(_QUEUED, "The job is queued."),
    ("GET", "/job/{job_id}"): _ok(kind("Job")),
    ("GET", "/job/{job_id}/tree"): _ok("tree?: Node\njobs?: [Node]"),
    ("GET", "/job/{job_id}/why"): _ok("job_id: text\nstatus: JobStatus\nwhy: [text]"),
    ("POST", "/job/{job_id}/cancel"): _taken("job_id: text\nwas: JobStatus\ncancelled: flag"),
    ("POST", "/job/{job_id}/retry"): _taken(_RETRIED),
    ("POST", "/job/{job_id}/replay"): _taken(_REPLAYED),
    ("GET", "/pipelines"): _ok("pipelines: [Pipeline]"),
    ("GET", "/pipeline/{name}"): _ok(kind("Pipeline")),
    ("POST", "/pipeline/{name}"): {
        202: ("It is started, and goes on by itself.", fields(_STARTED)),
        200: (
            "A synchronous one has ended; or, with `dry_run`, what would run first.",
            {"anyOf": [fields(_ENDED), OBJECT]},
        ),
    },
    ("GET", "/pipeline-instance/{instance_id}"): _ok(kind("Instance")),
    ("GET", "/notices"): _ok(_page("notices", "Notice", "text")),
    ("GET", "/jobs"): _ok(_page("jobs", "JobSummary")),
    ("GET", "/job-ids"): _ok("job_ids: [text]"),
    ("POST", "/jobs/cancel"): _ok(_MANY),
    ("POST", "/jobs/retry"): _ok(_MANY),
    ("GET", "/analytics/summary"): _ok(_SUMMARY),
    ("GET", "/analytics/queue"): _ok(_QUEUE),
    ("GET", "/config/view"): _ok(_CONFIG),
    ("GET", "/plugin/{plugin}"): _ok("name: text\nstate: text\nreason: text?\ncommands: [Command]"),
    ("GET", "/plugin/{plugin}/openapi.json"): _ok(_DOCUMENT),
    ("GET", "/skills"): _ok(_SKILL),
    ("GET", "/openapi.json"): _ok(_DOCUMENT),
    ("GET", "/.well-known/ai-plugin.json"): _ok("schema_version: text\napi: object"),
    ("GET", "/queue"): _ok("queue_depth: int\nrunning: int\njobs: [JobSummary]"),
    ("GET", "/job-logs"): _ok(_page("logs", "Attempt")),
    ("GET", "/scheduler/jobs"): _ok("schedules: [Schedule]\nreminders: [Reminder]"),
    ("GET", "/scheduler/next"): _ok("fires: [object]"),
    ("GET", "/scheduler/explain"): _ok("slots: [object]"),
    ("GET", "/system/breaker/{plugin}"): _ok(
        "plugin: text\nbreakers: [Breaker]\ntransitions: [object]"
    ),
    ("POST", "/system/reset/{plugin}"): _ok("status: text\nplugin: text\nclosed: [text]"),
    ("GET", "/system/plugin-facts/{plugin}"): _ok(
        fields("plugin: text\nstate: any\nfacts: [object]\ncursor: int? - For the next page.")
    ),
    ("GET", "/relays"): _ok("relays: [Relay]"),
    ("POST", "/relays/retry"): _taken("relays: [text]\ncount: int\nmore: flag"),
    ("POST", "/relay/{relay_id}/retry"): _taken(_DONE_TO),
    ("GET", "/tokens"): _ok("tokens: [Token]"),
    ("POST", "/tokens"): {
        201: (
            "Made; the answer holds the token, this once.",
            fields("id: text\ntoken: text\nwarnings: [text] - Of scopes that open nothing."),
        ),
        200: ("With `dry_run`: what would be made.", OBJECT),
    },
    ("POST", "/token/{which}/revoke"): _ok(kind("Token")),
    ("POST", "/token/{which}/rotate"): _ok(kind("Token")),
    ("GET", "/system/reload"): _ok("status: text\nchanges: object"),
    ("POST", "/system/reload"): _ok(
        "status: text\nwarnings?: [text]\nrefused?: object\nchanges?: object",
        "It is in force; or, with `dry_run`, what would change.",
    ),
    ("GET", "/system/overview"): _ok("at: time\nversion: text\nqueue: object\nrunning: [object]"),
    ("GET", "/system/backup"): _ok(kind("Backup")),
    ("POST", "/system/backup"): _taken(kind("Backup")),
    ("POST", "/gateway/heartbeat"): _ok("status: text"),
    ("POST", "/gateway/messages"): {202: ("Accepted.", fields("status: text\ntrace_id: text"))},
    ("GET", "/gateway/heartbeats"): _ok(_page("agents", "Agent")),
    ("GET", "/gateway/capabilities"): _ok(_page("agents", "object")),
    ("GET", "/gateway/cron"): _ok(_page("reminders", "Reminder")),
    ("POST", "/gateway/cron"): {
        201: ("It is kept.", kind("Reminder")),
        200: ("With `dry_run`: what would be kept.", kind("Reminder")),
    },
    ("POST", "/gateway/cron/{reminder_id}/forget"): _ok(kind("Reminder")),
    ("GET", "/gateway/deliveries"): _ok(_page("deliveries", "Delivery")),
    ("GET", "/gateway/deliveries/{delivery_id}"): _ok(kind("Delivery")),
    ("POST", "/gateway/deliveries"): _taken("status: DeliveryStatus\ndelivery_id: int"),
    ("POST", "/gateway/deliveries/retry"): _taken("deliveries: [int]\ncount: int\nmore: flag"),
    ("POST", "/gateway/deliveries/{delivery_id}/retry"): _taken("delivery_id: int\nwas: text"),
    ("GET", "/gateway/webhook-configs"): _ok("webhooks: [Webhook]"),
    ("POST", "/gateway/webhook-configs"): {
        201: ("Made; a secret that was made here is shown this once.", kind("Webhook")),
        200: ("With `dry_run`: what would be made.", OBJECT),
    },
    ("DELETE", "/gateway/webhook-configs/{webhook_id}"): _ok("id: int"),
    ("POST", "/gateway/webhooks/{webhook_id}"): {
        202: ("Durably taken in.", fields("status: text\ndelivery_id: int"))
    },
}
TEXTS: dict[tuple[str, str], tuple[str, str]] = {
    ("GET", "/events"): ("text/event-stream", "Events as they happen; the connection stays open."),
    ("GET", "/metrics"): ("text/plain", "Samples in Prometheus' text format."),
    ("GET", "/docs"): ("text/html", "A page that shows this document, and can try it."),
}
"""Routes whose answer is no JSON."""

REFUSALS = {
    400: "Malformed: the error says what is.",
    401: "No token, or none that is good.",
    403: "Not with this token, or not from a page of another origin.",
    404: "There is no such thing.",
    409: "Understood, but not in this state.",
    413: "The body is too large.",
    421: "Not the host that this gateway answers for; see `allowed_hosts`.",
    422: "Well formed, but not acceptable: a key that came with another body, a missing field.",
    503: "Not now: the ledger is busy, or all places are taken.",
    507: "The disk is full; nothing was written.",
}


def refusals(method: str, path: str, *, secured: bool) -> list[int]:
    """The statuses by which a route may refuse."""
    found = {400, 403, 421, 503}
    if secured or path.startswith("/gateway/webhooks/"):
        found.add(401)
    if "{" in path or path.startswith("/scheduler/"):
        found.add(404)
    if method != "GET":
        found |= {404, 409, 413, 422, 507}
    if path == "/system/reload":
        found.add(409)
    return sorted(found)
