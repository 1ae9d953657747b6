"""Jobs, schedules, pauses, alerts and events."""

from __future__ import annotations

from ductile.http.route_table.rows import KEY, action, get, post

JOBS = (
    post(
        "/plugin/{plugin}/{command}",
        "plugin",
        "jobs.trigger",
        {202: "JobQueued", 200: "JobPlan"},
        body="TriggerBody",
        allow_trailing=True,
        headers=KEY,
    ),
    get("/job/{job_id}", "jobs:ro", "jobs.show_job", "Job", query="JobWaitQuery"),
    get("/job/{job_id}/tree", "jobs:ro", "jobs.show_tree", "JobTree", query="JobTreeQuery"),
    get("/job/{job_id}/why", "jobs:ro", "jobs.explain", "JobReasons"),
    get(
        "/job/{job_id}/log/stream",
        "jobs:ro",
        "streams.job_log.stream_job_log",
        "JobLogStream",
        headers=("Last-Event-ID",),
    ),
    post(
        "/job/{job_id}/cancel",
        "jobs:rw",
        "jobs.cancel_job",
        action("JobCancellation"),
        body="CancelBody",
        audit="job.cancel",
    ),
    post(
        "/job/{job_id}/retry",
        "jobs:rw",
        "jobs.retry_job",
        action("JobRetry"),
        body="ActionBody",
        headers=KEY,
        audit="job.retry",
    ),
    post(
        "/job/{job_id}/replay",
        "jobs:rw",
        "jobs.replay_job",
        action("JobReplay"),
        body="ReplayBody",
        headers=KEY,
        audit="job.replay",
    ),
    get("/jobs", "jobs:ro", "jobs.list_jobs", "JobPage", query="JobListQuery"),
    get("/job-ids", "jobs:ro", "jobs.list_ids", "JobIds", query="JobIdQuery"),
    get("/queue", "jobs:ro", "jobs.list_queue", "Queue", query="QueueQuery"),
    get("/job-logs", "jobs:ro", "jobs.list_attempts", "AttemptPage", query="JobLogQuery"),
    post(
        "/jobs/cancel",
        "jobs:rw",
        "jobs.cancel_jobs",
        "BulkResult",
        body="BulkBody",
        audit="job.cancel_many",
    ),
    post(
        "/jobs/retry",
        "jobs:rw",
        "jobs.retry_jobs",
        "BulkResult",
        body="BulkBody",
        headers=KEY,
        audit="job.retry_many",
    ),
    get(
        "/analytics/summary",
        "jobs:ro",
        "analytics.show_summary",
        "AnalyticsSummary",
        query="SummaryQuery",
    ),
    get("/analytics/hours", "jobs:ro", "analytics.show_hours", "AnalyticsHours"),
    get("/analytics/queue", "jobs:ro", "analytics.show_queue", "AnalyticsQueue"),
)

SCHEDULES = (
    get("/scheduler/jobs", "jobs:ro", "schedules.list_schedules", "Schedules"),
    get("/scheduler/next", "jobs:ro", "schedules.list_next_fires", "Fires", query="NextFireQuery"),
    get(
        "/scheduler/explain",
        "jobs:ro",
        "schedules.explain_occurrences",
        "Occurrences",
        query="ScheduleHistoryQuery",
    ),
    post(
        "/scheduler/{plugin}/{schedule}/pause",
        "system:rw",
        "schedules.pause_schedule",
        "SchedulePause",
        body="ActionBody",
        audit="schedule.pause",
    ),
    post(
        "/scheduler/{plugin}/{schedule}/resume",
        "system:rw",
        "schedules.resume_schedule",
        "SchedulePause",
        body="ActionBody",
        audit="schedule.resume",
    ),
    get("/system/breaker/{plugin}", "jobs:ro", "schedules.list_breakers", "Breakers"),
    post(
        "/system/reset/{plugin}",
        "system:rw",
        "schedules.reset_breakers",
        "BreakerReset",
        body="ActionBody",
        audit="breaker.reset",
    ),
)

PAUSES = (
    get("/pauses", "jobs:ro", "pauses.list_pauses", "Pauses"),
    *(
        post(f"{path}/{verb}", "system:rw", handler, model, body=body, audit=f"{noun}.{verb}")
        for noun, path, pause, resume in (
            ("plugin", "/plugins/{name}", "pauses.pause_plugin", "pauses.resume_plugin"),
            (
                "pipeline",
                "/pipelines/{name}",
                "pauses.pause_pipeline",
                "pauses.resume_pipeline",
            ),
            ("system", "/system", "pauses.pause_system", "pauses.resume_system"),
        )
        for verb, handler, model, body in (
            ("pause", pause, "Pause", "PauseBody"),
            ("resume", resume, "Resumed", "ActionBody"),
        )
    ),
)

ALERTS = (
    get("/alerts", "jobs:ro", "alerts.list_alerts", "AlertRules"),
    get("/alerts/{name}", "jobs:ro", "alerts.show_alert", "AlertRuleDetail"),
    post(
        "/alerts/{name}/test",
        "system:rw",
        "alerts.test_alert",
        action("AlertTest"),
        body="ActionBody",
        audit="alert.test",
    ),
    post(
        "/alerts/{name}/silence",
        "system:rw",
        "alerts.silence_alert",
        "AlertSilence",
        body="SilenceBody",
        audit="alert.silence",
    ),
    post(
        "/alerts/{name}/unsilence",
        "system:rw",
        "alerts.unsilence_alert",
        "AlertSilence",
        body="ActionBody",
        audit="alert.unsilence",
    ),
)

EVENTS = (
    get("/notices", "events:ro", "streams.events.list_notices", "Notices", query="NoticeQuery"),
    get(
        "/events",
        "events:ro",
        "streams.events.stream_events",
        "EventStream",
        query="EventQuery",
        headers=("Last-Event-ID",),
    ),
)
