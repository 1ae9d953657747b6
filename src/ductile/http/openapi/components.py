"""The nouns that the API tells of, as schemas."""

from __future__ import annotations

from ductile.http.openapi.notation import Schema, fields, kind
from ductile.model import JobStatus, SubmittedBy

ERROR = """
error: text - What is wrong, for people.
code: text - The same for programs, and it does not change.
"""
AGENTS_ERROR = """
status: error|rejected
reason: text - What is wrong, for programs.
detail?: text - The same for people.
"""
SUMMARY = """
job_id: text
plugin: text
command: text
status: JobStatus
attempt: int - The attempt that runs, or runs next.
max_attempts: int
submitted_by: SubmittedBy
dedupe_key: text?
created_at: time
started_at: time?
completed_at: time?
next_retry_at: time? - Until then it waits.
last_error: text?
parent_job_id: text? - The job whose event made this one.
source_event_id: text?
pipeline: text - The pipeline that it is a step of, or nothing.
step_path: text
replay_of: text?
waits_for: text? - Why it does not run yet.
"""
JOB = """
job_id: text
plugin: text
command: text
payload?: any
status: JobStatus
attempt: int - The attempt that runs, or runs next.
max_attempts?: int
submitted_by: text
created_at: text
started_at: time?
completed_at: time?
last_error: text?
result: any - The whole response of the last attempt.
attempts: [Attempt] - The last ones; all of them, or as many as have room.
attempts_left_out?: int - So many came before those; see /job-logs.
transitions: [Transition] - The last thousand.
transitions_left_out?: int - So many came before those.
waits_for?: text - Why it does not run yet.
pruned?: flag - Only the log still knows it.
"""
ATTEMPT = """
id: text - The job's id, a dash, and the attempt.
job_id?: text
plugin: text
command: text
status: JobStatus
attempt: int - 0 where the job ended without having run.
result: any - The whole response; in lists null without `include_result`.
last_error: text?
stdout?: text? - What stood there in place of a response.
stderr: text?
logs: any - Its lines, each with a level and a message.
started_at: time?
completed_at: time
duration_ms: number?
"""
TRANSITION = """
from_status: text?
to_status: JobStatus
attempt: int
reason: text?
created_at: time
"""
NODE = """
job_id: text
plugin: text
command: text
status: JobStatus
pipeline: text?
step: text?
parent_job_id: text?
attempt: int
last_error: text?
result: any
depth: int
left_out?: [text] - What of it the answer has no room for; ask for that job.
more?: flag - On the first: there may be more jobs than these.
children?: [Node]
children_left_out?: int - So many are deeper than a tree shows; ask with flat=true.
"""
PLUGIN = """
name: text
state: ready|unhealthy|refused|shadowed|disabled
reason: text? - Why it is not ready.
version?: text
protocol?: int
commands: any
path: text?
description?: text
"""
COMMAND = """
name: text
type: read|write
description: text
input_schema: object?
output_schema: object?
idempotent: flag?
"""
PIPELINE = """
name: text
on: text? - The event type that starts it.
on_hook: text?
from_plugin: text?
if: text?
execution_mode: text
timeout: number?
max_depth: int?
steps: any - How many, or each as it was compiled.
mermaid?: text
drawing?: text
"""
INSTANCE = """
instance_id: text
pipeline: text
status: open|succeeded|failed|skipped
reason: text?
created_at: time
ended_at: time?
jobs: [object]
result: any - The whole response of its last step.
"""
SCHEDULE = """
plugin: text
schedule: text
command: text
rule: text
timezone: text
next_run: time?
last_fire: time?
last_success: time?
state: text
reason: text? - Why it does not fire.
"""
BREAKER = """
plugin: text
command: text
state: closed|open|half_open
failure_count: int
opened_at: time?
last_failure_at: time?
last_job_id: text?
"""
ATTEMPT_COUNT = """
plugin: text
status: JobStatus
attempts: int
mean_ms: number?
max_ms: number?
"""
QUEUE_COUNT = """
plugin: text
status: queued|running
jobs: int
oldest: time - When the first of them was made.
oldest_seconds: number
"""
NOTICE = """
id: int
topic: text
type: text
job_id: text?
created_at: time
payload: object
"""
TOKEN = """
id: text
name: text
scopes: [text]
created_at: time
expires_at: time?
revoked_at: time?
rotated_at: time?
"""
AGENT = """
agent_id: text
cluster_id: text
last_seen_at: text - By the agent's own clock.
received_at: time? - By the gateway's.
state?: live|gone
capabilities?: any
"""
REMINDER = """
id?: int
agent_id: text
schedule: text?
next_fire_at: time
is_one_time: flag
payload?: any
"""
DELIVERY = """
delivery_id: int
webhook_id: int
session_id: text
target_url: text
status: DeliveryStatus
attempt_count: int - Sends that failed.
last_attempted_at: time?
next_retry_at: time?
created_at: time
error_detail: text?
payload?: any
sending?: flag
"""
WEBHOOK = """
id: int
source_identifier: text
event_type: text
agent_intent: text
target_session: text
target_url: text?
plugin: text?
pipeline: text?
"""
RELAY = """
id: text
instance: text
event_type: text
status: DeliveryStatus
attempt_count: int
next_retry_at: time?
error_detail: text?
created_at: time
"""
BACKUP = """
state: text
path: text?
done: int
total: int
error: text?
"""

COMPONENTS: dict[str, Schema] = {
    "Error": fields(ERROR),
    "AgentsError": fields(AGENTS_ERROR),
    "JobStatus": kind("|".join(JobStatus)),
    "SubmittedBy": kind("|".join(SubmittedBy)),
    "DeliveryStatus": kind("pending|delivered|failed|dead"),
    "JobSummary": fields(SUMMARY),
    "Job": fields(JOB),
    "Attempt": fields(ATTEMPT),
    "Transition": fields(TRANSITION),
    "Node": fields(NODE),
    "Plugin": fields(PLUGIN),
    "Command": fields(COMMAND),
    "Pipeline": fields(PIPELINE),
    "Instance": fields(INSTANCE),
    "Schedule": fields(SCHEDULE),
    "Breaker": fields(BREAKER),
    "AttemptCount": fields(ATTEMPT_COUNT),
    "QueueCount": fields(QUEUE_COUNT),
    "Notice": fields(NOTICE),
    "Token": fields(TOKEN),
    "Agent": fields(AGENT),
    "Reminder": fields(REMINDER),
    "Delivery": fields(DELIVERY),
    "Webhook": fields(WEBHOOK),
    "Relay": fields(RELAY),
    "Backup": fields(BACKUP),
}
