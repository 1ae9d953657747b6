-- name: insert_job
-- A new job, ready at once.
INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,
                       submitted_by, submitter, dedupe_key, dedupe_ttl, created_at,
                       enqueued_snapshot_id)
VALUES (:id, :plugin, :command, :payload, 'queued', 1, :max_attempts, :submitted_by,
        :submitter, :dedupe_key, :dedupe_ttl, :now, :snapshot_id);

-- name: set_submitter
UPDATE job_queue SET submitter = :submitter WHERE id @is_given@;

-- name: attempt_exists
-- Whether the log has an attempt of this job.
SELECT 1 FROM job_log WHERE id > :id || '-' AND id < :id || '-:' LIMIT 1;

-- name: import_job
-- A queued job of the Go program. No row means that this ledger already has it.
INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts, submitted_by,
                       dedupe_key, created_at, next_retry_at, last_error)
VALUES (:id, :plugin, :command, :payload, 'queued', :attempt, :max_attempts, :submitted_by,
        :dedupe_key, :created_at, :next_retry_at, :last_error)
ON CONFLICT DO NOTHING;

-- name: insert_routed_job
-- No row means that this event already has the job.
@insert_job_of_new_event@
ON CONFLICT DO NOTHING;

-- name: insert_job_of_new_event
INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,
                       submitted_by, dedupe_key, dedupe_ttl, created_at, parent_job_id,
                       source_event_id, enqueued_snapshot_id, event_context_id,
                       entered_context_id, hops, pipeline, step_path, branch, scope_id, join_of,
                       replay_of, trace)
VALUES (:id, :plugin, :command, :payload, 'queued', 1, :max_attempts, :submitted_by,
        :dedupe_key, :dedupe_ttl, :now, :parent_job_id, :source_event_id, :snapshot_id,
        :context_id, :context_id, :hops, :pipeline, :step_path, :branch, :scope_id, :join_of,
        :replay_of, :trace);

-- name: outstanding_duplicate
-- A queued or running job with the same key and target, and of the step if one is given.
SELECT id, status FROM job_queue
WHERE dedupe_key = :dedupe_key AND plugin = :plugin AND command = :command
  AND (CAST(:step_path AS TEXT) IS NULL OR (pipeline = :pipeline AND step_path = :step_path))
  AND status IN ('queued', 'running')
ORDER BY seq LIMIT 1;

-- name: succeeded_duplicates
-- Successes with the same key and target in the period; also those with a time in another
-- format, which does not sort by time.
SELECT id, status, completed_at FROM job_queue
WHERE dedupe_key = :dedupe_key AND plugin = :plugin AND command = :command
  AND (CAST(:step_path AS TEXT) IS NULL OR (pipeline = :pipeline AND step_path = :step_path))
  AND status = 'succeeded' AND (completed_at >= :since OR completed_at @not_our_time@);

-- name: insert_dedupe_drop
INSERT INTO dedupe_drops (dedupe_key, plugin, command, submitted_by, existing_job_id, created_at)
VALUES (:dedupe_key, :plugin, :command, :submitted_by, :existing_job_id, :now);
