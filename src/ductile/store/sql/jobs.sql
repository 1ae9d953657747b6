-- name: insert_job
-- A fresh job, ready at once.
INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,
                       submitted_by, dedupe_key, dedupe_ttl, created_at, enqueued_snapshot_id)
VALUES (:id, :plugin, :command, :payload, 'queued', 1, :max_attempts, :submitted_by,
        :dedupe_key, :dedupe_ttl, :now, :snapshot_id);

-- name: outstanding_duplicate
-- A queued or running job with the same key and target: where a step is given, of that.
SELECT id, status FROM job_queue
WHERE dedupe_key = :dedupe_key AND plugin = :plugin AND command = :command
  AND (CAST(:step_path AS TEXT) IS NULL OR (pipeline = :pipeline AND step_path = :step_path))
  AND status IN ('queued', 'running')
ORDER BY seq LIMIT 1;

-- name: succeeded_duplicates
-- Successes with the same key and target inside the window; and those that a script has
-- written, whose times text order does not tell.
SELECT id, status, completed_at FROM job_queue
WHERE dedupe_key = :dedupe_key AND plugin = :plugin AND command = :command
  AND (CAST(:step_path AS TEXT) IS NULL OR (pipeline = :pipeline AND step_path = :step_path))
  AND status = 'succeeded' AND (completed_at >= :since OR completed_at @not_our_time@);

-- name: insert_dedupe_drop
INSERT INTO dedupe_drops (dedupe_key, plugin, command, submitted_by, existing_job_id, created_at)
VALUES (:dedupe_key, :plugin, :command, :submitted_by, :existing_job_id, :now);

-- name: job
SELECT * FROM job_queue WHERE id = :id;

-- name: job_summaries
-- Without their payloads, which may be large.
SELECT seq, id, plugin, command, status, attempt, max_attempts, submitted_by, dedupe_key,
       dedupe_ttl, created_at, started_at, completed_at, next_retry_at, last_error,
       parent_job_id, source_event_id, owner, enqueued_snapshot_id, started_snapshot_id,
       schedule_id, slot, event_context_id, entered_context_id, hops, pipeline, step_path,
       branch, scope_id, join_of, replay_of
FROM job_queue;

-- name: jobs
-- The newest first; each filter counts only where it is given, `before` is a cursor.
@job_summaries@
WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:plugin AS TEXT) IS NULL OR plugin = :plugin)
  AND (CAST(:command AS TEXT) IS NULL OR command = :command)
  AND (CAST(:submitted_by AS TEXT) IS NULL OR submitted_by = :submitted_by)
  AND (CAST(:before AS @big@) IS NULL OR seq < :before)
ORDER BY seq DESC LIMIT :limit;

-- name: pending_jobs
-- What waits and what runs, in the order of the queue.
@job_summaries@
WHERE status IN ('queued', 'running') ORDER BY seq LIMIT :limit;

-- name: queue_depth
SELECT count(*) FROM job_queue WHERE status = 'queued';

-- name: running_count
SELECT count(*) FROM job_queue WHERE status = 'running';

-- name: running_now
SELECT plugin, command, dedupe_key, id FROM job_queue
WHERE status = 'running' ORDER BY plugin LIMIT :limit;

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
-- (`.` follows the hyphen) is for the index alone. The last ones, of no more than 4 MiB unless one
-- alone has more; each with how many there are before it.
WITH sized AS (
  SELECT seq, attempt, coalesce(octet_length(result), 0) + coalesce(octet_length(last_error), 0)
         + coalesce(octet_length(stdout), 0) + coalesce(octet_length(stderr), 0)
         + coalesce(octet_length(logs), 0) AS size
  FROM job_log WHERE id > :id || '-' AND id < :id || '.' AND id = :id || '-' || attempt
), summed AS (
  SELECT seq, row_number() OVER (ORDER BY attempt) - 1 AS older,
         row_number() OVER (ORDER BY attempt DESC) AS place,
         sum(size) OVER (ORDER BY attempt DESC) AS total FROM sized
)
SELECT l.*, summed.older FROM summed JOIN job_log l ON l.seq = summed.seq
WHERE summed.place = 1 OR summed.total <= 4194304 ORDER BY l.attempt;

-- name: job_transitions
-- The last thousand, each with how many there are before it.
SELECT from_status, to_status, attempt, reason, created_at, older FROM (
  SELECT id, from_status, to_status, attempt, reason, created_at,
         row_number() OVER (ORDER BY id) - 1 AS older
  FROM job_transitions WHERE job_id = :id ORDER BY id DESC LIMIT 1000) AS latest
ORDER BY id;

-- name: attempt_sizes
SELECT seq, coalesce(octet_length(result), 0),
       coalesce(octet_length(last_error), 0) + coalesce(octet_length(stdout), 0)
       + coalesce(octet_length(stderr), 0) + coalesce(octet_length(logs), 0)
FROM job_log;

-- name: attempts
-- The newest first, `before` the cursor: which they are and how large.
@attempt_sizes@ WHERE seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: attempts_of_plugin
@attempt_sizes@ WHERE plugin = :plugin AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: attempts_of_job
-- By the index, as `job_attempts` finds them.
@attempt_sizes@ WHERE id > :job_id || '-' AND id < :job_id || '.' AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- name: matching_attempts
-- Of those that are given. What text order does not tell of a time is for the caller to judge.
SELECT l.seq, l.completed_at
FROM @given@ JOIN job_log l ON l.seq = CAST(given.id AS @big@)
WHERE (CAST(:job_id AS TEXT) IS NULL OR l.id = :job_id || '-' || l.attempt)
  AND (CAST(:plugin AS TEXT) IS NULL OR l.plugin = :plugin)
  AND (CAST(:command AS TEXT) IS NULL OR l.command = :command)
  AND (CAST(:status AS TEXT) IS NULL OR l.status = :status)
  AND (CAST(:submitted_by AS TEXT) IS NULL OR l.submitted_by = :submitted_by)
  AND (CAST(:since AS TEXT) IS NULL OR l.completed_at >= :since
       OR l.completed_at @not_our_time@)
  AND (CAST(:until AS TEXT) IS NULL OR l.completed_at <= :until
       OR l.completed_at @not_our_time@)
  AND (CAST(:text AS TEXT) IS NULL
       OR @place@(lower(l.last_error @collate@), :text) > 0
       OR @place@(lower(l.stderr @collate@), :text) > 0
       OR @place@(lower(l.result @collate@), :text) > 0)
ORDER BY l.seq DESC;

-- name: attempts_by_seq
SELECT l.seq, l.id, l.job_id, l.plugin, l.command, l.status,
       CASE WHEN :results THEN l.result END AS result, l.attempt, l.submitted_by, l.created_at,
       l.started_at, l.completed_at, l.duration_ms, l.last_error, l.stdout, l.stderr, l.logs,
       l.parent_job_id, l.source_event_id
FROM @given@ JOIN job_log l ON l.seq = CAST(given.id AS @big@)
ORDER BY l.seq DESC;
