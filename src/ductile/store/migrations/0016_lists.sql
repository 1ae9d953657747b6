-- Jobs are listed by plugin, pipeline, state and time, newest first, without reading other jobs.
-- Few jobs end without success, so that most jobs are not in the indexes on the state. Their condition
-- is not a list: SQLite would build a table of its values for each change of a job.
CREATE INDEX job_queue_created ON job_queue (created_at, seq);
CREATE INDEX job_queue_plugin ON job_queue (plugin, created_at, seq);
CREATE INDEX job_queue_pipeline ON job_queue (pipeline, created_at, seq) WHERE pipeline <> '';
CREATE INDEX job_queue_status ON job_queue (status, created_at, seq)
  WHERE status <> 'queued' AND status <> 'running' AND status <> 'succeeded';
CREATE INDEX job_queue_plugin_status ON job_queue (plugin, status, created_at, seq)
  WHERE status <> 'queued' AND status <> 'running' AND status <> 'succeeded';
CREATE INDEX job_queue_pipeline_status ON job_queue (pipeline, status, created_at, seq)
  WHERE status <> 'queued' AND status <> 'running' AND status <> 'succeeded' AND pipeline <> '';
CREATE INDEX job_queue_pending ON job_queue (seq) WHERE status IN ('queued', 'running');

-- A schedule counts the outstanding polls of other producers. Events, which may be many, are not polls.
CREATE INDEX job_queue_other_polls ON job_queue (plugin, command)
  WHERE schedule_id IS NULL AND command <> 'handle' AND status IN ('queued', 'running');
