-- Pipeline runs are listed by time, by pipeline and by outcome, newest first.
CREATE INDEX scopes_runs ON scopes (created_at, id) WHERE split = '';
CREATE INDEX scopes_runs_pipeline ON scopes (pipeline, created_at, id) WHERE split = '';
CREATE INDEX scopes_runs_status ON scopes (status, created_at, id) WHERE split = '';
