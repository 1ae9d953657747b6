-- name: set_trace
UPDATE job_queue SET trace = :trace WHERE id = :id;

-- name: set_run_trace
UPDATE scopes SET trace = :trace WHERE id = :id;

-- name: set_delivery_trace
UPDATE webhook_deliveries SET trace = :trace WHERE id = CAST(:id AS @big@);

-- name: traces_of_jobs
SELECT id, trace, CASE WHEN parent_job_id IS NULL THEN source_event_id END FROM job_queue
WHERE id @is_given@;

-- name: traces_of_deliveries
SELECT id, trace FROM webhook_deliveries
WHERE id IN (SELECT CAST(given.id AS @big@) FROM @given@) AND trace IS NOT NULL;

-- name: traced_jobs
-- Ended jobs with what their spans show. No payloads: they may contain anything.
SELECT id, plugin, command, status, created_at, started_at, completed_at, attempt, pipeline,
       step_path, join_of, trace, CASE WHEN parent_job_id IS NULL THEN source_event_id END
FROM job_queue WHERE id @is_given@;

-- name: traced_attempts
-- The ids are those of the attempts: their jobs' with the number of the attempt.
SELECT id, attempt, status, started_at, completed_at, boot FROM job_log
WHERE id IN (SELECT given.id FROM @given@);

-- name: traced_runs
SELECT id, pipeline, status, created_at, ended_at, trace FROM scopes
WHERE id @is_given@ AND trace IS NOT NULL;

-- name: joined_jobs
-- The jobs of the split that a job joins.
SELECT id FROM job_queue WHERE scope_id = :scope_id ORDER BY seq LIMIT 32;
