-- name: running_jobs
-- What runs, the longest first.
SELECT id AS job_id, plugin, command, attempt, started_at, pipeline, step_path AS step
FROM job_queue WHERE status = 'running' ORDER BY started_at, seq LIMIT :limit;

-- name: waiting_by_plugin
-- Ready jobs, by the index of the claim alone.
SELECT plugin, count(*) AS jobs FROM job_queue
WHERE status = 'queued' AND next_retry_at IS NULL GROUP BY plugin ORDER BY count(*) DESC, plugin;

-- name: waiting_for_a_retry
SELECT count(*) FROM job_queue WHERE status = 'queued' AND next_retry_at IS NOT NULL;

-- name: recent_failures
-- Among the newest attempts: in a ledger without failures nobody looks further for one.
SELECT job_id, plugin, command, status, attempt, completed_at, last_error AS error
FROM (SELECT seq, job_id, plugin, command, status, attempt, completed_at, last_error
      FROM job_log ORDER BY seq DESC LIMIT :among) AS newest
WHERE status IN ('failed', 'timed_out', 'dead') ORDER BY seq DESC LIMIT :limit;

-- name: tripped_breakers
SELECT plugin, command, state, failure_count, opened_at FROM circuit_breakers
WHERE state <> 'closed' ORDER BY opened_at, plugin, command LIMIT :limit;
