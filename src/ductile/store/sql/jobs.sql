-- name: insert_job
-- A fresh job, ready at once.
INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,
                       submitted_by, dedupe_key, dedupe_ttl, created_at, parent_job_id,
                       source_event_id, enqueued_snapshot_id)
VALUES (:id, :plugin, :command, :payload, 'queued', 1, :max_attempts, :submitted_by,
        :dedupe_key, :dedupe_ttl, :now, :parent_job_id, :source_event_id, :snapshot_id);

-- name: outstanding_duplicate
-- A queued or running job with the same key and target.
SELECT id, status FROM job_queue
WHERE dedupe_key = :dedupe_key AND plugin = :plugin AND command = :command
  AND status IN ('queued', 'running')
ORDER BY seq LIMIT 1;

-- name: succeeded_duplicates
-- Successes with the same key and target inside the window; and those that a script has
-- written, whose times text order does not tell.
SELECT id, status, completed_at FROM job_queue
WHERE dedupe_key = :dedupe_key AND plugin = :plugin AND command = :command
  AND status = 'succeeded' AND (completed_at >= :since OR completed_at @not_our_time@);

-- name: insert_dedupe_drop
INSERT INTO dedupe_drops (dedupe_key, plugin, command, submitted_by, existing_job_id, created_at)
VALUES (:dedupe_key, :plugin, :command, :submitted_by, :existing_job_id, :now);

-- name: job
SELECT * FROM job_queue WHERE id = :id;

-- name: jobs
-- The newest first; each filter counts only where it is given, `before` is a cursor.
SELECT * FROM job_queue
WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:plugin AS TEXT) IS NULL OR plugin = :plugin)
  AND (CAST(:command AS TEXT) IS NULL OR command = :command)
  AND (CAST(:submitted_by AS TEXT) IS NULL OR submitted_by = :submitted_by)
  AND (CAST(:before AS @big@) IS NULL OR seq < :before)
ORDER BY seq DESC LIMIT :limit;

-- name: pending_jobs
-- What waits and what runs, in the order of the queue.
SELECT * FROM job_queue WHERE status IN ('queued', 'running') ORDER BY seq LIMIT :limit;

-- name: queue_depth
SELECT count(*) FROM job_queue WHERE status = 'queued';

-- name: running_count
SELECT count(*) FROM job_queue WHERE status = 'running';

-- name: last_runs
-- Each plugin's latest attempt, by its own index.
WITH RECURSIVE known(plugin) AS (
  SELECT (SELECT min(plugin) FROM job_log)
  UNION ALL
  SELECT (SELECT min(plugin) FROM job_log WHERE plugin > known.plugin)
  FROM known WHERE known.plugin IS NOT NULL
)
SELECT l.plugin, l.command, l.status, l.completed_at, l.last_error
FROM known JOIN job_log l
  ON l.seq = (SELECT max(seq) FROM job_log WHERE plugin = known.plugin)
ORDER BY l.plugin;

-- name: job_attempts
-- An attempt's id is its job's, a hyphen and its number. Other ids hold hyphens too: the range
-- (`.` follows the hyphen) is for the index alone.
SELECT * FROM job_log
WHERE id > :id || '-' AND id < :id || '.' AND id = :id || '-' || attempt ORDER BY attempt;

-- name: job_transitions
SELECT from_status, to_status, attempt, reason, created_at
FROM job_transitions WHERE job_id = :id ORDER BY id;

-- name: job_logs
-- Attempts, the newest first; `before` is the cursor.
SELECT * FROM job_log
WHERE (CAST(:plugin AS TEXT) IS NULL OR plugin = :plugin)
  AND (CAST(:command AS TEXT) IS NULL OR command = :command)
  AND (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:job_id AS TEXT) IS NULL OR id = :job_id || '-' || attempt)
  AND (CAST(:since AS TEXT) IS NULL OR completed_at >= :since)
  AND (CAST(:before AS @big@) IS NULL OR seq < :before)
ORDER BY seq DESC LIMIT :limit;
