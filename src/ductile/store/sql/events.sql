-- name: insert_routed_job
-- A job that an event makes. No row means that this event has made it already.
INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,
                       submitted_by, dedupe_key, dedupe_ttl, created_at, parent_job_id,
                       source_event_id, enqueued_snapshot_id, event_context_id,
                       entered_context_id, hops, pipeline, step_path, branch, scope_id, join_of,
                       replay_of)
VALUES (:id, :plugin, :command, :payload, 'queued', 1, :max_attempts, :submitted_by,
        :dedupe_key, :dedupe_ttl, :now, :parent_job_id, :source_event_id, :snapshot_id,
        :context_id, :context_id, :hops, :pipeline, :step_path, :branch, :scope_id, :join_of,
        :replay_of)
ON CONFLICT DO NOTHING;

-- name: insert_context
INSERT INTO event_context (id, parent_id, pipeline_name, step_id, accumulated_json, created_at)
VALUES (:id, :parent_id, :pipeline, :step_id, :accumulated, :now)
ON CONFLICT (id) DO NOTHING;

-- name: context
SELECT accumulated_json FROM event_context WHERE id = :id;

-- name: contexts_by_id
SELECT c.id, c.accumulated_json FROM @given@ JOIN event_context c ON c.id = given.id;

-- name: context_sizes
-- Each with its text, where that is small.
SELECT c.id, octet_length(c.accumulated_json),
       CASE WHEN octet_length(c.accumulated_json) <= 16384 THEN c.accumulated_json END
FROM @given@ JOIN event_context c ON c.id = given.id;

-- name: contexts
SELECT id, parent_id, pipeline_name, step_id, accumulated_json, created_at
FROM event_context WHERE id IN (SELECT event_context_id FROM job_queue WHERE id = :job_id);

-- name: set_context
UPDATE job_queue SET event_context_id = :context_id WHERE id = :id;

-- name: insert_scope
INSERT INTO scopes (id, parent_id, pipeline, split, branch, parent_job_id, hops, join_always,
                    join_step, join_plugin, join_command, context_id, join_of, created_at)
VALUES (:id, :parent_id, :pipeline, :split, :branch, :parent_job_id, :hops, :join_always,
        :join_step, :join_plugin, :join_command, :context_id, :join_of, :now);

-- name: scope_locked
SELECT id, parent_id, pipeline, split, branch, parent_job_id, hops, join_always, context_id,
       status, join_step, join_plugin, join_command
FROM scopes WHERE id = :id @lock_scope@;

-- name: scope
SELECT * FROM scopes WHERE id = :id;

-- name: scope_is_busy
-- A statement of its own, after the lock, so that it sees what the last holder committed.
SELECT 1 WHERE EXISTS (SELECT 1 FROM job_queue WHERE scope_id = :id
                       AND status IN ('queued', 'running'))
            OR EXISTS (SELECT 1 FROM scopes WHERE parent_id = :id AND status = 'open');

-- name: scope_went_badly
-- In `timed_out` no job of ours rests; one that a script has left there did not end well. What
-- a scope inside says of its end is told.
SELECT (SELECT min(reason) FROM scopes WHERE parent_id = :id AND status = 'failed')
WHERE EXISTS (SELECT 1 FROM job_queue WHERE scope_id = :id
              AND status IN ('failed', 'dead', 'timed_out'))
   OR EXISTS (SELECT 1 FROM scopes WHERE parent_id = :id AND status = 'failed');

-- name: end_scope
UPDATE scopes SET status = :status, ended_at = :now, reason = :reason
WHERE id = :id AND status = 'open';

-- name: reopen_scope
UPDATE scopes SET status = 'open', ended_at = NULL, reason = NULL
WHERE id = :id AND status IN ('failed', 'skipped');

-- name: ended_jobs_of_scope
-- The jobs of a scope and of the scopes inside it, each with its last attempt's response.
WITH RECURSIVE inside(id, joined) AS (
  SELECT CAST(:id AS TEXT) @collate@, 0
  UNION ALL
  SELECT s.id, CASE WHEN inside.joined = 1 THEN 1
                    WHEN EXISTS (SELECT 1 FROM job_queue k WHERE k.join_of = s.id) THEN 1
                    WHEN EXISTS (SELECT 1 FROM scopes k WHERE k.join_of = s.id) THEN 1
                    ELSE 0 END
  FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT j.id, j.parent_job_id, j.branch, j.step_path, j.status, l.result, inside.joined,
       j.last_error
FROM inside JOIN job_queue j ON j.scope_id = inside.id
LEFT JOIN job_log l ON l.id = j.id || '-' || j.attempt
ORDER BY j.seq;

-- name: jobs_of_instance
-- The first of the jobs of a scope and of the scopes inside it.
WITH RECURSIVE inside(id) AS (
  SELECT id FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT j.id AS job_id, j.step_path AS step, j.plugin, j.command, j.status, j.branch, j.attempt,
       j.max_attempts, j.created_at, j.started_at, j.completed_at, j.next_retry_at, j.last_error
FROM inside JOIN job_queue j ON j.scope_id = inside.id ORDER BY j.seq LIMIT :limit;

-- name: result_of_instance
-- The response of its newest job, of one of `:switch` only where there is no other.
WITH RECURSIVE inside(id) AS (
  SELECT id FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT result FROM job_log WHERE id = (
  SELECT j.id || '-' || j.attempt FROM inside JOIN job_queue j ON j.scope_id = inside.id
  ORDER BY j.plugin = :switch, j.seq DESC LIMIT 1);

-- name: children
SELECT id, plugin, pipeline, step_path, status FROM job_queue WHERE parent_job_id = :id
ORDER BY seq LIMIT :limit;

-- name: lineage
-- The graph that a job belongs to: all that came of its root and of the jobs that began an
-- instance with that. Where it is too large, first of all the job's ancestors, then what came
-- of the job. Loops end by hops.
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
-- Each job's attempts, found as `job_attempts` finds them, with the size of the response; the
-- response itself of the last alone, and where that is small.
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

-- name: drops_onto
SELECT dedupe_key, submitted_by, created_at FROM dedupe_drops
WHERE existing_job_id = :id ORDER BY id DESC LIMIT 20;

-- name: prune_contexts
-- Those that no job and no scope names any more.
DELETE FROM event_context WHERE id IN (
  SELECT c.id FROM event_context c
  WHERE c.created_at < :before
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.id = c.id)
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.entered_context_id = c.id)
    AND NOT EXISTS (SELECT 1 FROM scopes s WHERE s.context_id = c.id)
    AND NOT EXISTS (SELECT 1 FROM event_context child WHERE child.parent_id = c.id)
  ORDER BY c.created_at LIMIT :limit);

-- name: prune_scopes
DELETE FROM scopes WHERE id IN (
  SELECT s.id FROM scopes s
  WHERE s.ended_at IS NOT NULL AND s.ended_at < :before
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.scope_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM scopes child WHERE child.parent_id = s.id)
  ORDER BY s.ended_at LIMIT :limit);

-- name: workspace_in_use
-- By the job itself, by one that follows it, or by the join of a split behind it, which will
-- begin with the same files.
SELECT 1 FROM job_queue j WHERE (id = :id OR parent_job_id = :id)
  AND (status IN ('queued', 'running')
       OR EXISTS (@open_around_j@ AND around.parent_job_id = :id)) LIMIT 1;
