-- A run is a scope without a split. A filter that is NULL is not applied; (`at`, `before`) is a cursor.

-- name: runs
SELECT id, pipeline, status, reason, created_at, ended_at FROM scopes
WHERE split = '' AND (created_at, id) < (:at, :before) AND created_at >= :since
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: runs_of_pipeline
SELECT id, pipeline, status, reason, created_at, ended_at FROM scopes
WHERE split = '' AND pipeline = :pipeline
  AND (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (created_at, id) < (:at, :before) AND created_at >= :since
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: runs_with_status
SELECT id, pipeline, status, reason, created_at, ended_at FROM scopes
WHERE split = '' AND status = :status
  AND (created_at, id) < (:at, :before) AND created_at >= :since
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: last_runs_of_pipelines
-- The newest run of each pipeline: one search in the index for each.
SELECT s.id, s.pipeline, s.status, s.created_at, s.ended_at FROM @given@
JOIN scopes s ON s.id = (
  SELECT r.id FROM scopes r WHERE r.split = '' AND r.pipeline = given.id
  ORDER BY r.created_at DESC, r.id DESC LIMIT 1
);

-- name: run
SELECT id, pipeline, status, reason, created_at, ended_at FROM scopes
WHERE split = '' AND id = :id;

-- name: key_jobs_of_runs
-- The first job of each run, and its first job that failed.
WITH RECURSIVE inside(run, id) AS (
  SELECT given.id @collate@, given.id @collate@ FROM @given@
  UNION ALL
  SELECT inside.run, s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
), found(run, first, failed) AS (
  SELECT run, min(j.seq), min(CASE WHEN j.status IN ('failed', 'dead', 'timed_out') THEN j.seq END)
  FROM inside JOIN job_queue j ON j.scope_id = inside.id GROUP BY run
)
SELECT found.run, first.id, first.parent_job_id, first.submitted_by, failed.id, failed.step_path,
       failed.last_error, first.created_at, CASE WHEN first.attempt = 1 THEN first.started_at END
FROM found JOIN job_queue first ON first.seq = found.first
LEFT JOIN job_queue failed ON failed.seq = found.failed;

-- name: waiting_jobs_of_runs
-- The jobs of these runs that wait for an approval, an event or a time, those that began first first.
WITH RECURSIVE inside(run, id) AS (
  SELECT given.id @collate@, given.id @collate@ FROM @given@
  UNION ALL
  SELECT inside.run, s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT inside.run, j.id FROM inside JOIN job_queue j ON j.scope_id = inside.id
JOIN waits w ON w.job_id = j.id AND w.status = 'waiting'
WHERE j.status = 'queued' ORDER BY w.created_at, w.id;

-- name: end_of_run
-- The first job of a run, its last, and the first failed one outside of splits that did not fail.
WITH RECURSIVE inside(id, failed) AS (
  SELECT id, 1 FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id, CASE WHEN s.status = 'failed' THEN inside.failed ELSE 0 END
  FROM scopes s JOIN inside ON s.parent_id = inside.id
), found(first, last, failed) AS (
  SELECT min(j.seq), max(j.seq),
         min(CASE WHEN inside.failed = 1 AND j.status IN ('failed', 'dead', 'timed_out')
                  THEN j.seq END)
  FROM inside JOIN job_queue j ON j.scope_id = inside.id
)
SELECT first.hops AS first_hop, first.command, first.payload, last.id AS last_job_id,
       failed.id AS failed_job_id, failed.step_path AS failed_step, failed.last_error AS error
FROM found JOIN job_queue first ON first.seq = found.first JOIN job_queue last ON last.seq = found.last
LEFT JOIN job_queue failed ON failed.seq = found.failed;

-- name: steps_of_run
-- The first jobs of a run with small payloads and responses, and the end of the last attempt's log.
WITH RECURSIVE inside(id) AS (
  SELECT id FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT j.id AS job_id, j.step_path AS step, j.plugin, j.command, j.status, j.branch, j.attempt,
       j.max_attempts, j.parent_job_id, j.created_at, j.started_at, j.completed_at,
       NULLIF(j.next_retry_at, @never@) AS next_retry_at,
       j.last_error,
       CASE WHEN octet_length(j.payload) <= :most THEN j.payload END AS payload,
       CASE WHEN octet_length(l.result) <= :most THEN l.result END AS result,
       substr(l.stderr, CASE WHEN length(l.stderr) > :tail THEN length(l.stderr) - :tail + 1 ELSE 1 END)
         AS log_tail
FROM inside JOIN job_queue j ON j.scope_id = inside.id
LEFT JOIN job_log l ON l.id = j.id || '-' || j.attempt
ORDER BY j.seq LIMIT :limit;

-- name: splits_of_run
WITH RECURSIVE inside(id) AS (
  SELECT id FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT s.split, s.status, s.reason, s.created_at, s.ended_at FROM inside JOIN scopes s ON s.id = inside.id
WHERE s.split <> '' ORDER BY s.created_at, s.id;

-- name: jobs_of_run_in_status
-- Those that an operator may cancel or retry, oldest first.
WITH RECURSIVE inside(id) AS (
  SELECT id FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT j.id FROM inside JOIN job_queue j ON j.scope_id = inside.id
WHERE j.status @is_given@ ORDER BY j.seq LIMIT :limit;
