-- Waiting steps. The row of the job decides: only the transaction that ends the job writes how its
-- wait ended.

-- name: wait_columns
SELECT id, job_id, attempt, kind, pipeline, step_path, title, description, event_type, condition,
       on_timeout, created_at, due_at, status, ended_at, ended_by, comment, decided FROM waits;

-- name: park_job
-- The job of a wait that begins. Guarded like a settlement; no claim takes it from now on.
UPDATE job_queue
SET status = 'queued', started_at = NULL, next_retry_at = @never@, last_error = NULL, owner = NULL
WHERE id = :id AND status = 'running' AND attempt = :attempt
  AND (owner = :owner OR (owner IS NULL AND CAST(:owner AS TEXT) IS NULL));

-- name: insert_wait
INSERT INTO waits (id, job_id, attempt, kind, pipeline, step_path, title, description, event_type,
                   condition, on_timeout, token_hash, created_at, due_at)
VALUES (:id, :job_id, :attempt, :kind, :pipeline, :step_path, :title, :description, :event_type,
        :condition, :on_timeout, :token_hash, :now, :due_at);

-- name: end_waiting_job
-- The compare-and-set of every end of a wait: no row means that another one came first.
UPDATE job_queue SET status = :status, started_at = :since, completed_at = :now,
                     next_retry_at = NULL, last_error = :error
WHERE id = :id AND status = 'queued' AND attempt = :attempt AND next_retry_at = @never@;

-- name: end_wait
UPDATE waits SET status = :status, ended_at = :now, ended_by = :by, comment = :comment
WHERE job_id = :job_id AND attempt = :attempt AND status = 'waiting';

-- name: decide_wait
-- The first decision counts. It is due at once: a node that knows the pipeline ends the wait.
UPDATE waits SET decided = :decided, due_at = :now
WHERE id = :id AND status = 'waiting' AND decided IS NULL;

-- name: close_stray_wait
-- A wait whose job no longer waits: a script has changed or deleted the job.
UPDATE waits SET status = 'cancelled', ended_at = :now
WHERE id = :id AND status = 'waiting' AND NOT EXISTS (
  SELECT 1 FROM job_queue j WHERE j.id = waits.job_id AND j.attempt = waits.attempt
    AND j.status = 'queued' AND j.next_retry_at = @never@);

-- name: wait
@wait_columns@
WHERE id = :id;

-- name: open_wait_of_job
@wait_columns@
WHERE job_id = :job_id AND status = 'waiting';

-- name: waits_of_job
@wait_columns@
WHERE job_id = :job_id ORDER BY attempt;

-- name: open_waits_of_jobs
@wait_columns@
WHERE status = 'waiting' AND job_id @is_given@;

-- name: wait_of_token
@wait_columns@
WHERE token_hash = :token_hash;

-- name: approval_ids_with_prefix
SELECT id FROM waits WHERE kind = 'approval' AND id >= :prefix AND id < :beyond
ORDER BY id LIMIT :limit;

-- name: approvals
-- The newest first; a filter that is NULL is not applied. The cursor is the last row of a page.
@wait_columns@
WHERE kind = 'approval' AND (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:pipeline AS TEXT) IS NULL OR pipeline = :pipeline)
  AND (CAST(:before AS TEXT) IS NULL OR (created_at, id) < (:before, :before_id))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: waiting_approvals
-- As `approvals` for one status: the condition of the index, which holds open waits alone.
@wait_columns@
WHERE kind = 'approval' AND status = 'waiting'
  AND (CAST(:pipeline AS TEXT) IS NULL OR pipeline = :pipeline)
  AND (CAST(:before AS TEXT) IS NULL OR (created_at, id) < (:before, :before_id))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: due_waits
@wait_columns@
WHERE status = 'waiting' AND due_at IS NOT NULL AND due_at <= :now
  AND pipeline NOT IN (@paused@)
ORDER BY due_at LIMIT :limit;

-- name: next_due_wait
SELECT min(due_at) FROM waits
WHERE status = 'waiting' AND due_at IS NOT NULL AND pipeline NOT IN (@paused@);

-- name: waits_for_event
@wait_columns@
WHERE status = 'waiting' AND event_type = :event_type AND id > :after AND decided IS NULL
  AND created_at <= :before
ORDER BY id LIMIT :limit;

-- name: store_awaited_event
INSERT INTO awaited_events (id, event, after_wait, created_at)
VALUES (:id, :event, :after, :since);

-- name: newest_wait_for_event
-- Of all types: the index has its end.
SELECT max(created_at) FROM waits WHERE status = 'waiting' AND kind = 'event';

-- name: next_awaited_event
SELECT id FROM awaited_events ORDER BY created_at, id LIMIT 1;

-- name: awaited_event
SELECT event, after_wait, created_at FROM awaited_events WHERE id = :id;

-- name: move_awaited_event
UPDATE awaited_events SET after_wait = :after WHERE id = :id;

-- name: delete_awaited_event
DELETE FROM awaited_events WHERE id = :id;

-- name: awaited_types
SELECT DISTINCT event_type FROM waits WHERE status = 'waiting' AND event_type IS NOT NULL;

-- name: contexts_of_waits
SELECT w.id, c.accumulated_json FROM @given@ JOIN waits w ON w.id = given.id
JOIN job_queue j ON j.id = w.job_id JOIN event_context c ON c.id = j.entered_context_id;

-- name: count_waits
SELECT kind, count(*), min(created_at) FROM waits WHERE status = 'waiting' GROUP BY kind;

-- name: later_waits
-- Waits for a delay; a wait until a time follows the calendar.
SELECT id, due_at FROM waits
WHERE status = 'waiting' AND due_at IS NOT NULL AND due_at > :now AND kind <> 'until'
  AND id > :after
ORDER BY id LIMIT :limit;

-- name: move_wait
UPDATE waits SET due_at = :then WHERE id = :id AND status = 'waiting' AND due_at = :before;

-- name: instances_of_jobs
WITH RECURSIVE around(job_id, id, parent_id) AS (
  SELECT j.id, s.id, s.parent_id
  FROM @given@ JOIN job_queue j ON j.id = given.id JOIN scopes s ON s.id = j.scope_id
  UNION ALL
  SELECT around.job_id, s.id, s.parent_id FROM scopes s JOIN around ON s.id = around.parent_id
)
SELECT job_id, id FROM around WHERE parent_id IS NULL;

-- name: prune_waits
-- With their jobs: a wait of a job that still exists explains it.
DELETE FROM waits WHERE id IN (
  SELECT w.id FROM waits w WHERE w.ended_at IS NOT NULL AND w.ended_at < :before
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.id = w.job_id)
  ORDER BY w.ended_at LIMIT :limit);
