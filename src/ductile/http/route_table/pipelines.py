"""Pipelines, their runs and approvals."""

from __future__ import annotations

from ductile.http.route_table.rows import KEY, action, get, post

PIPELINES = (
    get("/pipelines", "any", "pipelines.list_pipelines", "Pipelines"),
    get("/pipeline/{name}", "any", "pipelines.show_pipeline", "Pipeline"),
    post(
        "/pipeline/{name}",
        "plugin:rw",
        "pipelines.start_pipeline",
        {202: "PipelineStarted", 200: "PipelineOutcome | PipelinePlan"},
        query="PipelineStartQuery",
        body="PipelineStartBody",
        allow_trailing=True,
        headers=KEY,
    ),
    get(
        "/pipeline-instance/{instance_id}",
        "jobs:ro",
        "pipelines.show_run",
        "Instance",
        query="RunWaitQuery",
    ),
    get("/pipeline-runs", "jobs:ro", "runs.list_runs", "Runs", query="RunFilterQuery"),
    get("/pipeline-runs/{run_id}", "jobs:ro", "runs.show_run", "Run", query="RunDetailQuery"),
    post(
        "/pipeline-runs/{run_id}/cancel",
        "jobs:rw",
        "runs.cancel",
        action("RunAction"),
        body="ActionBody",
        audit="run.cancel",
    ),
    post(
        "/pipeline-runs/{run_id}/retry",
        "jobs:rw",
        "runs.retry",
        action("RunAction"),
        body="ActionBody",
        headers=KEY,
        audit="run.retry",
    ),
    get(
        "/approvals", "approvals:ro", "waits.approvals.listing", "Approvals", query="ApprovalQuery"
    ),
    get("/approvals/{approval_id}", "approvals:ro", "waits.approvals.show", "Approval"),
    post(
        "/approvals/{approval_id}/approve",
        "approvals:rw",
        "waits.approvals.approve",
        action("ApprovalAction"),
        body="DecisionBody",
        headers=KEY,
        audit="approval.approve",
    ),
    post(
        "/approvals/{approval_id}/reject",
        "approvals:rw",
        "waits.approvals.reject",
        action("ApprovalAction"),
        body="DecisionBody",
        headers=KEY,
        audit="approval.reject",
    ),
)
