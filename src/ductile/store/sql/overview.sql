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

-- name: ids_beginning
-- The first ids from `prefix` to `beyond`, of the queue and of the log, where every job is one
-- probe: behind its attempts (`:` follows the digits) the next one's begin.
WITH RECURSIVE logged(id, number) AS (
  SELECT (SELECT substr(id, 1, length(id) - length('-' || attempt)) FROM job_log
          WHERE id >= :prefix AND id < :beyond ORDER BY id LIMIT 1), 1
  UNION ALL
  SELECT (SELECT substr(id, 1, length(id) - length('-' || attempt)) FROM job_log
          WHERE id > logged.id || '-:' AND id < :beyond ORDER BY id LIMIT 1), number + 1
  FROM logged WHERE logged.id IS NOT NULL AND number < :limit
)
SELECT id FROM (SELECT id FROM job_queue WHERE id >= :prefix AND id < :beyond
                ORDER BY id LIMIT :limit) AS queued
UNION
SELECT id FROM logged WHERE id >= :prefix
ORDER BY id LIMIT :limit;
