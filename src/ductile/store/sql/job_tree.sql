-- name: children
SELECT id, plugin, pipeline, step_path, status FROM job_queue WHERE parent_job_id = :id
ORDER BY seq LIMIT :limit;

-- name: lineage
-- The tree of a job: all descendants of its root, and of the jobs that began an instance together
-- with the root. If it is too large, the job's ancestors come first, then its descendants. Loops
-- end by the hop limit.
WITH RECURSIVE up(id, parent, scope, depth) AS (
  SELECT id, parent_job_id, scope_id, 0 FROM job_queue WHERE id = :id
  UNION ALL
  SELECT j.id, j.parent_job_id, j.scope_id, up.depth + 1
  FROM job_queue j JOIN up ON j.id = up.parent WHERE up.depth < 1000
), root(id, scope) AS (
  SELECT id, scope FROM up ORDER BY depth DESC LIMIT 1
), around(id, parent) AS (
  SELECT s.id, s.parent_id FROM scopes s JOIN root ON s.id = root.scope
  UNION ALL
  SELECT s.id, s.parent_id FROM scopes s JOIN around ON s.id = around.parent
), inside(id) AS (
  SELECT id FROM around WHERE parent IS NULL
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
), begun(id) AS (
  SELECT id FROM root
  UNION
  SELECT j.id FROM job_queue j JOIN inside ON j.scope_id = inside.id
), below(id) AS (
  SELECT id FROM job_queue WHERE id = :id
  UNION
  SELECT j.id FROM job_queue j JOIN below ON j.parent_job_id = below.id
), down(id) AS (
  SELECT id FROM begun
  UNION
  SELECT j.id FROM job_queue j JOIN down ON j.parent_job_id = down.id
), ranked(id, rank) AS (
  SELECT id, 0 FROM up
  UNION ALL
  SELECT id, 1 FROM (SELECT id FROM below LIMIT :limit) AS nearest
  UNION ALL
  SELECT id, 2 FROM (SELECT id FROM down LIMIT :limit) AS others
), picked(id) AS (
  SELECT id FROM ranked GROUP BY id ORDER BY min(rank) LIMIT :limit
)
SELECT j.seq, j.id, j.plugin, j.command, j.status, j.pipeline, j.step_path, j.branch, j.join_of,
       j.replay_of, j.parent_job_id, j.source_event_id, j.submitted_by, j.hops, j.attempt,
       j.created_at, j.started_at, j.completed_at, j.last_error, j.entered_context_id,
       j.event_context_id
FROM picked JOIN job_queue j ON j.id = picked.id ORDER BY j.seq;

-- name: logs_of_jobs
-- Each job's attempts, by the index as in `job_attempts`, with the size of the response; the
-- response itself only of the last attempt, and only if it is small.
SELECT given.id AS job_id, l.id, l.attempt, l.status, l.started_at, l.completed_at, l.duration_ms,
       l.last_error, coalesce(octet_length(l.result), 0) AS result_size,
       CASE WHEN octet_length(l.result) <= 16384
             AND NOT EXISTS (SELECT 1 FROM job_log later
                             WHERE later.id = given.id || '-' || (l.attempt + 1))
            THEN l.result END AS result
FROM @given@ JOIN job_log l ON l.id > given.id || '-' AND l.id < given.id || '.'
                           AND l.id = given.id || '-' || l.attempt
ORDER BY given.id, l.attempt;

-- name: results_of_attempts
SELECT l.id, l.result FROM @given@ JOIN job_log l ON l.id = given.id;

-- name: notices_of_job
SELECT id, topic, type, payload, created_at FROM notices
WHERE job_id = :id AND topic = 'events' ORDER BY id LIMIT 200;

-- name: splits_of_job
-- The splits around a job, and those that its events entered, the innermost first.
WITH RECURSIVE around(id, parent_id, split, pipeline, status, reason, join_step, depth) AS (
  SELECT s.id, s.parent_id, s.split, s.pipeline, s.status, s.reason, s.join_step, 0
  FROM scopes s
  WHERE s.id = (SELECT scope_id FROM job_queue WHERE id = :id)
     OR s.id IN (SELECT scope_id FROM job_queue WHERE parent_job_id = :id)
  UNION
  SELECT s.id, s.parent_id, s.split, s.pipeline, s.status, s.reason, s.join_step, around.depth + 1
  FROM scopes s JOIN around ON s.id = around.parent_id
)
SELECT id, split, pipeline, status, reason, join_step, min(depth) AS depth FROM around
WHERE split <> '' GROUP BY id, split, pipeline, status, reason, join_step
ORDER BY min(depth), id LIMIT 20;

-- name: started_under
-- Whether a job started under the configuration with this hash.
SELECT 1 FROM job_queue j JOIN config_snapshots s ON s.id = j.started_snapshot_id
WHERE j.id = :id AND s.config_hash = :config_hash;

-- name: dropped_duplicates
SELECT count(*) FROM dedupe_drops WHERE existing_job_id = :id;

-- name: dedupe_drops_of
SELECT dedupe_key, submitted_by, created_at FROM dedupe_drops
WHERE existing_job_id = :id ORDER BY id DESC LIMIT 20;
