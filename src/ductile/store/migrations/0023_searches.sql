-- A list of jobs with any of the filters plugin, pipeline, command and submitted_by reads the newest
-- jobs of each kind that matches: see `jobs_of_kinds` in store/sql/jobs.sql. The two indexes replace
-- those of fewer columns, so that a job writes as many entries as before.
DROP INDEX job_queue_plugin;
CREATE INDEX job_queue_kind ON job_queue (plugin, command, submitted_by, created_at, seq);
DROP INDEX job_queue_pipeline;
CREATE INDEX job_queue_pipeline_kind
  ON job_queue (pipeline, plugin, command, submitted_by, created_at, seq) WHERE pipeline <> '';

-- A job is found by the end of its id. The last two characters divide the jobs into 256 parts, each in
-- the order of their numbers: a new job is written at the end of one of 256 places, which stay in
-- memory. An index of whole ends would write to a random page for each job. The log, which is read only
-- if the queue has no such job, has no index of this kind.
CREATE INDEX job_queue_id_end ON job_queue (substr(id, length(id) - 1));
