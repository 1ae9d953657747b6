"""Pipelines, their runs and approvals."""

from __future__ import annotations

from ductile.http.route_table.rows import KEY, action, change, get, post

# fmt: off
PIPELINES = (
    get("/pipelines", "any", "pipelines.definitions.list_pipelines", "Pipelines"),
    get("/pipeline/{name}", "any", "pipelines.definitions.show_pipeline", "Pipeline"),
    post("/pipeline/{name}", "plugin:rw", "pipelines.start.start_pipeline",
        {202: "PipelineStarted", 200: "PipelineOutcome | PipelinePlan"},
        query="PipelineStartQuery", body="PipelineStartBody", allow_trailing=True, headers=KEY),
    get("/pipeline-instance/{instance_id}", "jobs:ro", "pipelines.start.show_run",
        "Instance", "RunWaitQuery"),
    get("/pipeline-runs", "jobs:ro", "pipelines.runs.list_runs", "Runs", "RunFilterQuery"),
    get("/pipeline-runs/{run_id}", "jobs:ro", "pipelines.runs.show_run", "Run", "RunDetailQuery"),
    change("/pipeline-runs/{run_id}/cancel", "jobs:rw", "pipelines.runs.cancel",
        action("RunAction"), "run.cancel"),
    change("/pipeline-runs/{run_id}/retry", "jobs:rw", "pipelines.runs.retry", action("RunAction"),
        "run.retry", headers=KEY),
    get("/approvals", "approvals:ro", "pipelines.approvals.listing", "Approvals", "ApprovalQuery"),
    get("/approvals/{approval_id}", "approvals:ro", "pipelines.approvals.show", "Approval"),
    change("/approvals/{approval_id}/approve", "approvals:rw", "pipelines.approvals.approve",
        action("ApprovalAction"), "approval.approve", "DecisionBody", headers=KEY),
    change("/approvals/{approval_id}/reject", "approvals:rw", "pipelines.approvals.reject",
        action("ApprovalAction"), "approval.reject", "DecisionBody", headers=KEY),
)
