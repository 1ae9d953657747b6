-- name: orphans
-- Running jobs of a boot that has ended, oldest first.
SELECT @job@ FROM job_queue @by_index@ job_queue_running
WHERE status = 'running' AND (owner = :owner OR (owner IS NULL AND CAST(:owner AS TEXT) IS NULL))
ORDER BY seq LIMIT :limit;

-- name: running_of_owner
SELECT id, attempt FROM job_queue WHERE status = 'running' AND owner = :owner;

-- name: undo_claim
-- A claimed job whose process never started: its attempt does not count.
UPDATE job_queue SET status = 'queued', owner = NULL, started_at = NULL
WHERE id = :id AND status = 'running' AND attempt = :attempt;

-- name: was_claim_undone
SELECT 1 FROM job_transitions
WHERE job_id = :id AND attempt = :attempt AND to_status = 'queued' AND reason = :reason
LIMIT 1;

-- name: queued_plugins
SELECT DISTINCT plugin FROM job_queue @by_index@ job_queue_pending
WHERE status IN ('queued', 'running') AND status = 'queued';

-- name: queued_groups
-- The queued jobs by all that a configuration decides about them, with the id of one of each.
SELECT plugin, command, pipeline, step_path, enqueued_snapshot_id AS snapshot_id,
       CASE WHEN next_retry_at = @never@ AND plugin = 'core.wait' THEN 1 ELSE 0 END AS is_waiting,
       count(*) AS jobs,
       min(id) AS example
FROM job_queue @by_index@ job_queue_pending
WHERE status IN ('queued', 'running') AND status = 'queued'
GROUP BY plugin, command, pipeline, step_path, enqueued_snapshot_id, is_waiting
ORDER BY plugin, command, pipeline, step_path, example LIMIT :limit;

-- name: snapshots_of_queued
-- The configurations under which the queued jobs of a plugin were created.
SELECT id, config FROM config_snapshots WHERE id IN (
  SELECT enqueued_snapshot_id FROM job_queue @by_index@ job_queue_pending
  WHERE status IN ('queued', 'running') AND status = 'queued' AND plugin = :plugin);

-- name: queued_of_plugin
SELECT @job@ FROM job_queue @by_index@ job_queue_pending
WHERE status IN ('queued', 'running') AND status = 'queued' AND plugin = :plugin
  AND (1 = :any_snapshot OR enqueued_snapshot_id @is_given@)
ORDER BY seq LIMIT :limit;

-- name: requeue_job
-- An operator's retry: the same job and the next attempt, with the plugin's number of attempts.
UPDATE job_queue SET status = 'queued', attempt = attempt + 1,
                     max_attempts = attempt + :attempts, started_at = NULL,
                     completed_at = NULL, next_retry_at = NULL, last_error = NULL,
                     acknowledged_at = NULL, acknowledged_by = NULL, set_aside = @in_order@
WHERE id = :id AND status = :status AND attempt = :attempt;

-- name: skip_backoff
-- Also of a debounced job: no later event replaces a job that an operator has started.
UPDATE job_queue SET next_retry_at = NULL, debounce_series = NULL, set_aside = @in_order@
WHERE id = :id AND status = 'queued' AND next_retry_at IS NOT NULL AND next_retry_at < @never@
  AND attempt = :attempt;
