"""Pipelines, their runs and approvals."""

from __future__ import annotations

from ductile.http.route_table.rows import KEY, action, get, post

PIPELINES = (
    get("/pipelines", "any", "pipelines.definitions.list_pipelines", "Pipelines"),
    get("/pipeline/{name}", "any", "pipelines.definitions.show_pipeline", "Pipeline"),
    post(
        "/pipeline/{name}",
        "plugin:rw",
        "pipelines.definitions.start_pipeline",
        {202: "PipelineStarted", 200: "PipelineOutcome | PipelinePlan"},
        query="PipelineStartQuery",
        body="PipelineStartBody",
        allow_trailing=True,
        headers=KEY,
    ),
    get(
        "/pipeline-instance/{instance_id}",
        "jobs:ro",
        "pipelines.definitions.show_run",
        "Instance",
        query="RunWaitQuery",
    ),
    get("/pipeline-runs", "jobs:ro", "pipelines.runs.list_runs", "Runs", query="RunFilterQuery"),
    get(
        "/pipeline-runs/{run_id}",
        "jobs:ro",
        "pipelines.runs.show_run",
        "Run",
        query="RunDetailQuery",
    ),
    post(
        "/pipeline-runs/{run_id}/cancel",
        "jobs:rw",
        "pipelines.runs.cancel",
        action("RunAction"),
        body="ActionBody",
        audit="run.cancel",
    ),
    post(
        "/pipeline-runs/{run_id}/retry",
        "jobs:rw",
        "pipelines.runs.retry",
        action("RunAction"),
        body="ActionBody",
        headers=KEY,
        audit="run.retry",
    ),
    get(
        "/approvals",
        "approvals:ro",
        "pipelines.approvals.listing",
        "Approvals",
        query="ApprovalQuery",
    ),
    get("/approvals/{approval_id}", "approvals:ro", "pipelines.approvals.show", "Approval"),
    post(
        "/approvals/{approval_id}/approve",
        "approvals:rw",
        "pipelines.approvals.approve",
        action("ApprovalAction"),
        body="DecisionBody",
        headers=KEY,
        audit="approval.approve",
    ),
    post(
        "/approvals/{approval_id}/reject",
        "approvals:rw",
        "pipelines.approvals.reject",
        action("ApprovalAction"),
        body="DecisionBody",
        headers=KEY,
        audit="approval.reject",
    ),
)
