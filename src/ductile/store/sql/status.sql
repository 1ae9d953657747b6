-- name: running_jobs
-- Running jobs, the longest first.
SELECT id AS job_id, plugin, command, attempt, started_at, pipeline, step_path AS step
FROM job_queue WHERE status = 'running' ORDER BY started_at, seq LIMIT :limit;

-- name: running_now
SELECT plugin, command, dedupe_key, id, started_at FROM job_queue
WHERE status = 'running' ORDER BY plugin LIMIT :limit;

-- name: scheduled_jobs
-- Queued and running jobs of schedules, the oldest first.
SELECT plugin, schedule_id, id FROM job_queue
WHERE schedule_id IS NOT NULL AND status IN ('queued', 'running') ORDER BY seq LIMIT :limit;

-- name: ready_by_plugin
-- Ready jobs, by the indexes of the claim only.
SELECT plugin, CAST(sum(part) AS @big@) AS jobs FROM (
  SELECT plugin, count(*) AS part FROM job_queue
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0 GROUP BY plugin
  UNION ALL
  SELECT plugin, count(*) AS part FROM job_queue
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0 GROUP BY plugin) AS counted
GROUP BY plugin ORDER BY sum(part) DESC, plugin;

-- name: retries_waiting
SELECT count(*) FROM job_queue WHERE status = 'queued' AND next_retry_at IS NOT NULL
  AND next_retry_at < @never@;

-- name: recent_failures
-- Among the newest attempts only, so that a ledger without failures is not scanned.
SELECT job_id, plugin, command, status, attempt, completed_at, last_error AS error
FROM (SELECT seq, job_id, plugin, command, status, attempt, completed_at, last_error
      FROM job_log ORDER BY seq DESC LIMIT :among) AS newest
WHERE status IN ('failed', 'timed_out', 'dead') ORDER BY seq DESC LIMIT :limit;

-- name: tripped_breakers
-- With the error of the newest job that counted, as long as the job is kept.
SELECT b.plugin, b.command, b.state, b.failure_count, b.opened_at, b.last_job_id,
       j.last_error AS cause
FROM circuit_breakers b LEFT JOIN job_queue j ON j.id = b.last_job_id
WHERE b.state <> 'closed' ORDER BY b.opened_at, b.plugin, b.command LIMIT :limit;

-- name: queue_by_plugin
-- Queued and running jobs, and since when the oldest one waits.
SELECT plugin, status, count(*) AS jobs, min(created_at) AS oldest
FROM job_queue @by_index@ job_queue_pending
WHERE status IN ('queued', 'running') GROUP BY plugin, status ORDER BY plugin, status;

-- name: finished_by_plugin
-- Attempts that ended since then, with their run times.
SELECT plugin, status, count(*) AS attempts, avg(duration_ms) AS mean_ms, max(duration_ms) AS max_ms
FROM job_log WHERE seq >= :first AND completed_at >= :since
GROUP BY plugin, status ORDER BY plugin, status;

-- name: log_bounds
SELECT (SELECT min(seq) FROM job_log), (SELECT max(seq) FROM job_log);

-- name: log_row_from
SELECT seq, completed_at FROM job_log WHERE seq >= :seq ORDER BY seq LIMIT 1;

-- name: outcomes_by_hour
-- Only columns before the texts of a row, so that SQLite reads no overflow pages.
SELECT substr(completed_at, 1, 13), plugin, status, count(*)
FROM job_log WHERE seq >= :first AND completed_at >= :since AND completed_at < :until
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: outcomes_of_plugins
-- A job that was skipped, or ended before it started, has not been tried.
SELECT plugin, count(*), sum(CASE WHEN status = 'succeeded' THEN 0 ELSE 1 END)
FROM job_log WHERE seq >= :first AND completed_at >= :since AND completed_at < :until
  AND status <> 'skipped' AND started_at >= :started
GROUP BY plugin;

-- name: outcomes_of_pipelines
SELECT j.pipeline, count(*), sum(CASE WHEN l.status = 'succeeded' THEN 0 ELSE 1 END)
FROM job_log l JOIN job_queue j ON j.id = l.job_id
WHERE l.seq >= :first AND l.completed_at >= :since AND l.completed_at < :until
  AND l.status <> 'skipped' AND l.started_at >= :started
  AND j.pipeline <> ''
GROUP BY j.pipeline;

-- name: outcomes_of_schedules
-- The attempts of the jobs that a schedule of a plugin has fired.
SELECT j.plugin || '/' || j.schedule_id, count(*),
  sum(CASE WHEN l.status = 'succeeded' THEN 0 ELSE 1 END)
FROM job_log l JOIN job_queue j ON j.id = l.job_id
WHERE l.seq >= :first AND l.completed_at >= :since AND l.completed_at < :until
  AND l.status <> 'skipped' AND l.started_at >= :started
  AND j.schedule_id IS NOT NULL
GROUP BY j.plugin, j.schedule_id;

-- name: all_breakers
SELECT plugin, command, state FROM circuit_breakers ORDER BY plugin, command LIMIT :limit;

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

-- name: queue_depth
-- Ready jobs, those that a limit holds, and those that wait for a retry: each has an index, all
-- queued jobs together have none.
SELECT (SELECT count(*) FROM job_queue
        WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0)
     + (SELECT count(*) FROM job_queue
        WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0)
     + (SELECT count(*) FROM job_queue WHERE status = 'queued' AND next_retry_at IS NOT NULL);

-- name: running_count
SELECT count(*) FROM job_queue WHERE status = 'running';

-- name: job_error
-- The error of one job's newest attempt.
SELECT last_error FROM job_queue WHERE id = :id;
