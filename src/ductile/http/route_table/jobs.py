"""Jobs, schedules, pauses, alerts and events."""

from __future__ import annotations

from ductile.http.route_table.rows import KEY, action, change, get, post

# fmt: off
JOBS = (
    post("/plugin/{plugin}/{command}", "plugin", "jobs.trigger",
        {202: "JobQueued", 200: "JobPlan"}, body="TriggerBody", allow_trailing=True, headers=KEY),
    get("/job/{job_id}", "jobs:ro", "jobs.show_job", "Job", "JobWaitQuery"),
    get("/job/{job_id}/tree", "jobs:ro", "jobs.show_tree", "JobTree", "JobTreeQuery"),
    get("/job/{job_id}/why", "jobs:ro", "jobs.explain", "JobReasons"),
    get("/job/{job_id}/log/stream", "jobs:ro", "streams.job_log.stream_job_log", "JobLogStream",
        headers=("Last-Event-ID",)),
    change("/job/{job_id}/cancel", "jobs:rw", "jobs.cancel_job", action("JobCancellation"),
        "job.cancel", "CancelBody"),
    change("/job/{job_id}/retry", "jobs:rw", "jobs.retry_job", action("JobRetry"), "job.retry",
        headers=KEY),
    change("/job/{job_id}/acknowledge", "jobs:rw", "jobs.acknowledge_job",
        action("JobAcknowledgement"), "job.acknowledge"),
    change("/job/{job_id}/replay", "jobs:rw", "jobs.replay_job", action("JobReplay"), "job.replay",
        "ReplayBody", headers=KEY),
    get("/jobs", "jobs:ro", "jobs.list_jobs", "JobPage", "JobListQuery"),
    get("/jobs/failures", "jobs:ro", "jobs.show_failures", "Failures"),
    get("/job-ids", "jobs:ro", "jobs.list_ids", "JobIds", "JobIdQuery"),
    get("/queue", "jobs:ro", "jobs.list_queue", "Queue", "QueueQuery"),
    get("/job-logs", "jobs:ro", "jobs.list_attempts", "AttemptPage", "JobLogQuery"),
    change("/jobs/cancel", "jobs:rw", "jobs.cancel_jobs", "BulkResult", "job.cancel_many",
        "BulkBody"),
    change("/jobs/retry", "jobs:rw", "jobs.retry_jobs", "BulkResult", "job.retry_many", "BulkBody",
        headers=KEY),
    change("/jobs/acknowledge", "jobs:rw", "jobs.acknowledge_jobs", "BulkResult",
        "job.acknowledge_many", "BulkBody"),
    get("/analytics/summary", "jobs:ro", "analytics.show_summary", "AnalyticsSummary",
        "SummaryQuery"),
    get("/analytics/hours", "jobs:ro", "analytics.show_hours", "AnalyticsHours"),
    get("/analytics/queue", "jobs:ro", "analytics.show_queue", "AnalyticsQueue"),
)

SCHEDULES = (
    get("/scheduler/jobs", "jobs:ro", "schedules.list_schedules", "Schedules"),
    get("/scheduler/next", "jobs:ro", "schedules.list_next_fires", "Fires", "NextFireQuery"),
    get("/scheduler/explain", "jobs:ro", "schedules.explain_occurrences", "Occurrences",
        "ScheduleHistoryQuery"),
    change("/scheduler/{plugin}/{schedule}/pause", "system:rw", "schedules.pause_schedule",
        "SchedulePause", "schedule.pause"),
    change("/scheduler/{plugin}/{schedule}/resume", "system:rw", "schedules.resume_schedule",
        "SchedulePause", "schedule.resume"),
    get("/system/breaker/{plugin}", "jobs:ro", "schedules.list_breakers", "Breakers"),
    change("/system/reset/{plugin}", "system:rw", "schedules.reset_breakers", "BreakerReset",
        "breaker.reset"),
)

PAUSES = (
    get("/pauses", "jobs:ro", "pauses.list_pauses", "Pauses"),
    change("/plugins/{name}/pause", "system:rw", "pauses.pause_plugin", "Pause",
        "plugin.pause", "PauseBody"),
    change("/plugins/{name}/resume", "system:rw", "pauses.resume_plugin", "Resumed",
        "plugin.resume"),
    change("/pipelines/{name}/pause", "system:rw", "pauses.pause_pipeline", "Pause",
        "pipeline.pause", "PauseBody"),
    change("/pipelines/{name}/resume", "system:rw", "pauses.resume_pipeline", "Resumed",
        "pipeline.resume"),
    change("/system/pause", "system:rw", "pauses.pause_system", "Pause",
        "system.pause", "PauseBody"),
    change("/system/resume", "system:rw", "pauses.resume_system", "Resumed", "system.resume"),
)

ALERTS = (
    get("/alerts", "jobs:ro", "alerts.list_alerts", "AlertRules"),
    get("/alerts/{name}", "jobs:ro", "alerts.show_alert", "AlertRuleDetail"),
    change("/alerts/{name}/test", "system:rw", "alerts.test_alert", action("AlertTest"),
        "alert.test"),
    change("/alerts/{name}/silence", "system:rw", "alerts.silence_alert", "AlertSilence",
        "alert.silence", "SilenceBody"),
    change("/alerts/{name}/unsilence", "system:rw", "alerts.unsilence_alert", "AlertSilence",
        "alert.unsilence"),
)

EVENTS = (
    get("/notices", "events:ro", "streams.events.list_notices", "Notices", "NoticeQuery"),
    get("/events", "events:ro", "streams.events.stream_events", "EventStream", "EventQuery",
        headers=("Last-Event-ID",)),
)
