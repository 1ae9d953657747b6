-- name: settle_job
-- Guarded by its attempt and owner: no row means that another process has ended the attempt.
UPDATE job_queue
SET status = :status, attempt = :next_attempt, max_attempts = max_attempts + :uncounted,
    started_at = CASE WHEN :status = 'queued' THEN NULL ELSE started_at END,
    completed_at = :completed_at, next_retry_at = :retry_at, last_error = :error, owner = NULL
WHERE id = :id AND status = 'running' AND attempt = :attempt
  AND (owner = :owner OR (owner IS NULL AND CAST(:owner AS TEXT) IS NULL));

-- name: settle_job_rows [postgres]
-- For many attempts at once. By an array of ids and not by a join, for which PostgreSQL may read
-- all of job_queue as long as it has no statistics.
WITH given AS MATERIALIZED (
  SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS row (
    id TEXT, attempt INTEGER, owner TEXT, status TEXT, next_attempt INTEGER, uncounted INTEGER,
    completed_at TEXT, retry_at TEXT, error TEXT)
)
UPDATE job_queue SET (status, attempt, max_attempts, started_at, completed_at, next_retry_at,
                      last_error, owner) = (
  SELECT given.status, given.next_attempt, job_queue.max_attempts + given.uncounted,
         CASE WHEN given.status = 'queued' THEN NULL ELSE job_queue.started_at END,
         given.completed_at, given.retry_at, given.error, NULL
  FROM given WHERE given.id = job_queue.id)
WHERE id = ANY(CAST(:ids AS TEXT[])) AND status = 'running' AND EXISTS (
  SELECT 1 FROM given WHERE given.id = job_queue.id AND given.attempt = job_queue.attempt
    AND given.owner IS NOT DISTINCT FROM job_queue.owner)
RETURNING id;

-- name: insert_transition
INSERT INTO job_transitions (job_id, from_status, to_status, attempt, reason, created_at)
VALUES (:job_id, :from_status, :to_status, :attempt, :reason, :now);

-- name: insert_log
-- The columns that it shares with its job are copied from the job in this transaction.
INSERT INTO job_log (id, job_id, plugin, command, status, result, attempt, submitted_by,
                     created_at, started_at, completed_at, duration_ms, last_error, stdout,
                     stderr, logs, parent_job_id, source_event_id, boot)
VALUES (:id, :job_id, :plugin, :command, :status, :result, :attempt, :submitted_by,
        :created_at, :started_at, :now, :duration_ms, :error, :stdout, :stderr, :logs,
        :parent_job_id, :source_event_id, :boot);

-- name: end_queued_job
-- A job that ends while it is queued.
UPDATE job_queue SET status = :status, completed_at = :now, next_retry_at = NULL,
                     last_error = :error, debounce_series = NULL
WHERE id = :id AND status = 'queued' AND attempt = :attempt;

-- name: end_last_attempt
-- A job that ends while it waits for a retry: the row of its last attempt gets the final status.
UPDATE job_log SET status = :status, last_error = :error WHERE id = :id;

-- name: attempt_timed_out
SELECT 1 FROM job_transitions
WHERE job_id = :id AND attempt = :attempt AND to_status = 'timed_out' LIMIT 1;
