-- name: ready_heads
-- Each plugin with a ready job: the number of its running jobs, the position of its oldest ready
-- job, and whether that has a dedupe key; also whether anything at all is paused or closed, and
-- the first and last configuration hash of the registered nodes. A plugin with jobs set aside has a
-- further row, without a position. A loose index scan, whose cost grows with the number of plugins,
-- not of jobs: it finds the first jobs themselves, because PostgreSQL reads the entries of jobs that
-- have left the index, until a VACUUM, each time that it looks for the first one. Not a join, for
-- which PostgreSQL reads all of job_queue as long as it has no statistics. Without parameters, so
-- that PostgreSQL plans it once per connection: its plan costs more than its execution.
WITH RECURSIVE ready(seq) AS (
  SELECT (SELECT seq FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
          ORDER BY plugin, seq LIMIT 1)
  UNION ALL
  SELECT (SELECT seq FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
            AND plugin > (SELECT plugin FROM job_queue found WHERE found.seq = ready.seq)
          ORDER BY plugin, seq LIMIT 1)
  FROM ready WHERE ready.seq IS NOT NULL
), heads(seq, plugin) AS MATERIALIZED (
  SELECT ready.seq, (SELECT plugin FROM job_queue head WHERE head.seq = ready.seq)
  FROM ready WHERE ready.seq IS NOT NULL
), set_aside(plugin) AS (
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0)
  UNION ALL
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0
            AND plugin > set_aside.plugin)
  FROM set_aside WHERE set_aside.plugin IS NOT NULL
)
SELECT heads.plugin,
       (SELECT count(*) FROM job_queue running
        WHERE running.status = 'running' AND running.plugin = heads.plugin),
       heads.seq,
       (SELECT head.dedupe_key IS NOT NULL FROM job_queue head WHERE head.seq = heads.seq),
       EXISTS (SELECT 1 FROM pauses),
       EXISTS (SELECT 1 FROM closed_keys),
       @config_hashes@
FROM heads
UNION ALL
SELECT set_aside.plugin,
       (SELECT count(*) FROM job_queue running
        WHERE running.status = 'running' AND running.plugin = set_aside.plugin),
       NULL, NULL,
       EXISTS (SELECT 1 FROM pauses),
       EXISTS (SELECT 1 FROM closed_keys),
       @config_hashes@
FROM set_aside WHERE set_aside.plugin IS NOT NULL;

-- name: running_of_plugin
SELECT count(*) FROM job_queue WHERE status = 'running' AND plugin = :plugin;

-- name: first_ready
-- The position of a plugin's oldest job that may run: only `init` if the others must wait for it,
-- none whose dedupe key is running, none of the given schedules while an earlier run of it has not
-- ended, none of a paused pipeline, and none that another node is about to start.
SELECT j.seq FROM job_queue j
WHERE j.plugin = :plugin AND j.status = 'queued' AND j.next_retry_at IS NULL AND j.set_aside = 0
@may_run@
ORDER BY j.seq LIMIT 1 @skip_locked@;

-- name: first_ready_limit_keys
-- As `first_ready`: the oldest jobs of a plugin with limits, and their limit keys.
SELECT j.seq, j.id, j.limit_key, j.command, j.seq FROM job_queue j
WHERE j.plugin = :plugin AND j.status = 'queued' AND j.next_retry_at IS NULL AND j.set_aside = 0
  AND j.seq >= :first
@may_run@
ORDER BY j.seq LIMIT :limit;

-- name: first_placed_limit_keys
-- The same of the jobs with a place of their own, in the order of their places.
SELECT j.place, j.id, j.limit_key, j.command, j.seq FROM job_queue j
WHERE j.plugin = :plugin AND j.status = 'queued' AND j.next_retry_at IS NULL AND j.set_aside = 2
@may_run@
ORDER BY j.place, j.seq LIMIT :limit;

-- name: first_set_aside
-- The first jobs set aside of a limit key and pipeline that may run, by their place in the queue.
SELECT coalesce(j.place, j.seq), j.id, j.limit_key, j.command, j.seq FROM job_queue j
WHERE j.plugin = :plugin AND j.limit_key = :limit_key AND j.pipeline = :pipeline
  AND j.status = 'queued' AND j.next_retry_at IS NULL AND j.set_aside <> 0
@may_run@
ORDER BY coalesce(j.place, j.seq), j.seq LIMIT :limit;

-- name: newest_set_aside
SELECT coalesce(j.place, j.seq), j.id, j.limit_key, j.command, j.seq FROM job_queue j
WHERE j.plugin = :plugin AND j.limit_key = :limit_key AND j.pipeline = :pipeline
  AND j.status = 'queued' AND j.next_retry_at IS NULL AND j.set_aside <> 0
@may_run@
ORDER BY j.seq DESC LIMIT 1;

-- name: running_limit_keys
SELECT limit_key, count(*) FROM job_queue
WHERE status = 'running' AND plugin = :plugin GROUP BY limit_key;

-- name: start_first
-- Start that job. The claim is the start: from its commit the attempt counts. Also returns the
-- plugin's state, the context that the job enters with, and the job's trace.
UPDATE job_queue SET status = 'running', started_at = :now, owner = :owner,
                     started_snapshot_id = :snapshot_id, debounce_series = NULL
WHERE seq = (@first_ready@)
RETURNING @job@,
          (SELECT state FROM plugin_state WHERE plugin_name = plugin),
          (SELECT accumulated_json FROM event_context
           WHERE event_context.id = job_queue.entered_context_id),
          trace;

-- name: consecutive_ready
-- A plugin's ready jobs before a position in the queue that no other node is about to start: whether
-- each has a dedupe key, and whether this would be its last attempt; and its pipeline.
SELECT seq, id, pipeline, dedupe_key IS NOT NULL, attempt >= max_attempts FROM job_queue
WHERE plugin = :plugin AND status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
  AND seq < :before
ORDER BY seq LIMIT :limit @skip_locked@;

-- name: start_consecutive
-- Start all ready jobs of a plugin between two positions in the queue.
UPDATE job_queue SET status = 'running', started_at = :now, owner = :owner,
                     started_snapshot_id = :snapshot_id, debounce_series = NULL
WHERE plugin = :plugin AND status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
  AND seq BETWEEN :first AND :last
RETURNING @job@,
          (SELECT state FROM plugin_state WHERE plugin_name = plugin),
          (SELECT accumulated_json FROM event_context
           WHERE event_context.id = job_queue.entered_context_id),
          trace;

-- name: start_consecutive [postgres]
-- By their ids: a row that another node has just committed between them was not looked at. Those
-- that were are locked.
UPDATE job_queue SET status = 'running', started_at = :now, owner = :owner,
                     started_snapshot_id = :snapshot_id, debounce_series = NULL
WHERE id @is_given@
RETURNING @job@,
          (SELECT state FROM plugin_state WHERE plugin_name = plugin),
          (SELECT accumulated_json FROM event_context
           WHERE event_context.id = job_queue.entered_context_id),
          trace;

-- name: start_job
-- Start one job by its id, ahead of all others. If it returns to the queue, it returns to its order.
UPDATE job_queue SET status = 'running', started_at = :now, owner = :owner,
                     started_snapshot_id = :snapshot_id, debounce_series = NULL,
                     set_aside = @in_order@, displaced_attempt = NULL
WHERE @waits@
RETURNING @job@,
          (SELECT state FROM plugin_state WHERE plugin_name = plugin),
          (SELECT accumulated_json FROM event_context
           WHERE event_context.id = job_queue.entered_context_id),
          trace;

-- name: promote_due_retries
-- Make due jobs ready, in small batches that keep the writer free. No delay reaches beyond the
-- horizon, so a later time comes from a clock that has been set back since. Times in other
-- formats do not sort by time, and have to be normalized first. A debounced run of a pipeline with
-- a limit takes its turn instead.
UPDATE job_queue SET next_retry_at = NULL, set_aside = @in_order@
WHERE id IN (SELECT due.id FROM job_queue due
             WHERE due.status = 'queued' AND due.next_retry_at IS NOT NULL
               AND (due.next_retry_at <= :now
                    OR (due.next_retry_at > :horizon AND due.next_retry_at < @never@))
               AND NOT (due.next_retry_at @not_our_time@)
               AND NOT EXISTS (SELECT 1 FROM scopes s
                               WHERE s.id = due.scope_id AND s.held_since = @never@)
             ORDER BY due.next_retry_at LIMIT :limit @skip_locked@);

-- name: next_retry
-- One query per end of the index: for both in one query SQLite scans all of it.
-- Waiting steps are not among them.
SELECT (SELECT min(next_retry_at) FROM job_queue
        WHERE status = 'queued' AND next_retry_at IS NOT NULL AND next_retry_at < @never@),
       (SELECT max(next_retry_at) FROM job_queue
        WHERE status = 'queued' AND next_retry_at IS NOT NULL AND next_retry_at < @never@);

-- name: has_foreign_retry
SELECT 1 FROM job_queue
WHERE status = 'queued' AND next_retry_at IS NOT NULL AND next_retry_at @not_our_time@ LIMIT 1;

-- name: foreign_retries
SELECT id, next_retry_at FROM job_queue
WHERE status = 'queued' AND next_retry_at IS NOT NULL AND next_retry_at @not_our_time@
LIMIT :limit @skip_locked@;

-- name: set_retry
UPDATE job_queue SET next_retry_at = :retry_at, set_aside = @in_order@ WHERE id = :id;

-- name: has_ready
SELECT 1 WHERE EXISTS (
    SELECT 1 FROM job_queue WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0)
  OR EXISTS (
    SELECT 1 FROM job_queue WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0);
