-- name: ready_heads
-- Each plugin that has a ready job: how many of its jobs run now, where the oldest that waits
-- stands, and whether that has a dedupe key. A loose index scan: its cost grows with the plugins
-- that wait, not with the jobs. Not by a join, for which PostgreSQL may read all of job_queue,
-- and does where it has no statistics yet.
WITH RECURSIVE ready(plugin) AS (
  SELECT (SELECT min(plugin) FROM job_queue WHERE status = 'queued' AND next_retry_at IS NULL)
  UNION ALL
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND plugin > ready.plugin)
  FROM ready WHERE ready.plugin IS NOT NULL
)
SELECT ready.plugin,
       (SELECT count(*) FROM job_queue running
        WHERE running.status = 'running' AND running.plugin = ready.plugin),
       (SELECT head.seq FROM job_queue head
        WHERE head.plugin = ready.plugin AND head.status = 'queued'
          AND head.next_retry_at IS NULL
        ORDER BY head.seq LIMIT 1),
       (SELECT head.dedupe_key IS NOT NULL FROM job_queue head
        WHERE head.plugin = ready.plugin AND head.status = 'queued'
          AND head.next_retry_at IS NULL
        ORDER BY head.seq LIMIT 1)
FROM ready WHERE ready.plugin IS NOT NULL;

-- name: running_of_plugin
SELECT count(*) FROM job_queue WHERE status = 'running' AND plugin = :plugin;

-- name: first_ready
-- Where a plugin's oldest job stands that may run: only `init` where the others must wait for
-- it, none whose dedupe key runs now and, where several claim at once, none that another is
-- about to start.
SELECT j.seq FROM job_queue j
WHERE j.plugin = :plugin AND j.status = 'queued' AND j.next_retry_at IS NULL
  AND (j.command = 'init' OR 0 = :init_only)
  AND (j.dedupe_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM job_queue r WHERE r.status = 'running' AND r.plugin = j.plugin
      AND r.command = j.command AND r.dedupe_key = j.dedupe_key))
ORDER BY j.seq LIMIT 1 @skip_locked@;

-- name: start_first
-- Start that job. The claim is the start: once this is committed the attempt counts. With the
-- job come its plugin's state and the context that it enters with.
UPDATE job_queue SET status = 'running', started_at = :now, owner = :owner,
                     started_snapshot_id = :snapshot_id
WHERE seq = (@first_ready@)
RETURNING @job@,
          (SELECT state FROM plugin_state WHERE plugin_name = plugin),
          (SELECT accumulated_json FROM event_context
           WHERE event_context.id = job_queue.entered_context_id);

-- name: ready_run
-- A plugin's jobs that wait before a place in line: whether each has a dedupe key, and whether
-- this would be its last attempt.
SELECT seq, id, dedupe_key IS NOT NULL, attempt >= max_attempts FROM job_queue
WHERE plugin = :plugin AND status = 'queued' AND next_retry_at IS NULL AND seq < :before
ORDER BY seq LIMIT :limit;

-- name: start_run
-- Start all of a plugin's that wait between two places in line.
UPDATE job_queue SET status = 'running', started_at = :now, owner = :owner,
                     started_snapshot_id = :snapshot_id
WHERE plugin = :plugin AND status = 'queued' AND next_retry_at IS NULL
  AND seq BETWEEN :first AND :last
RETURNING @job@,
          (SELECT state FROM plugin_state WHERE plugin_name = plugin),
          (SELECT accumulated_json FROM event_context
           WHERE event_context.id = job_queue.entered_context_id);

-- name: start_job
-- The same for one job by its id, whatever waits before it.
UPDATE job_queue SET status = 'running', started_at = :now, owner = :owner,
                     started_snapshot_id = :snapshot_id
WHERE @waits@
RETURNING @job@,
          (SELECT state FROM plugin_state WHERE plugin_name = plugin),
          (SELECT accumulated_json FROM event_context
           WHERE event_context.id = job_queue.entered_context_id);

-- name: due_retries
-- Clear the waiting mark of what is due; small batches keep the writer free. No delay
-- reaches beyond the horizon: what does was set by a clock that has been set back since. Of
-- times that are not in our form text order says nothing: they have to be mended first.
UPDATE job_queue SET next_retry_at = NULL
WHERE id IN (SELECT id FROM job_queue
             WHERE status = 'queued' AND next_retry_at IS NOT NULL
               AND (next_retry_at <= :now OR next_retry_at > :horizon)
               AND NOT (next_retry_at @not_our_time@)
             ORDER BY next_retry_at LIMIT :limit @skip_locked@);

-- name: next_retry
-- Each end of the index by itself: asked for both at once, SQLite walks through all of it.
SELECT (SELECT min(next_retry_at) FROM job_queue
        WHERE status = 'queued' AND next_retry_at IS NOT NULL),
       (SELECT max(next_retry_at) FROM job_queue
        WHERE status = 'queued' AND next_retry_at IS NOT NULL);

-- name: has_foreign_retry
SELECT 1 FROM job_queue
WHERE status = 'queued' AND next_retry_at IS NOT NULL AND next_retry_at @not_our_time@ LIMIT 1;

-- name: foreign_retries
SELECT id, next_retry_at FROM job_queue
WHERE status = 'queued' AND next_retry_at IS NOT NULL AND next_retry_at @not_our_time@
LIMIT :limit @skip_locked@;

-- name: set_retry
UPDATE job_queue SET next_retry_at = :retry_at WHERE id = :id;

-- name: has_ready
SELECT 1 FROM job_queue WHERE status = 'queued' AND next_retry_at IS NULL LIMIT 1;
