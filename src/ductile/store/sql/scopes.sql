-- name: insert_scope
INSERT INTO scopes (id, parent_id, pipeline, split, branch, parent_job_id, hops, join_always,
                    join_step, join_plugin, join_command, context_id, join_of, created_at)
VALUES (:id, :parent_id, :pipeline, :split, :branch, :parent_job_id, :hops, :join_always,
        :join_step, :join_plugin, :join_command, :context_id, :join_of, :now);

-- name: lock_scope
SELECT id, parent_id, pipeline, split, branch, parent_job_id, hops, join_always, context_id,
       status, join_step, join_plugin, join_command, schedule_id,
       limit_key, displaced_by
FROM scopes WHERE id = :id @lock_scope@;

-- name: scope
SELECT * FROM scopes WHERE id = :id;

-- name: scope_is_busy
-- A separate statement after the lock, so that it sees what the previous holder committed.
SELECT 1 WHERE EXISTS (SELECT 1 FROM job_queue WHERE scope_id = :id
                       AND status IN ('queued', 'running'))
            OR EXISTS (SELECT 1 FROM scopes WHERE parent_id = :id AND status = 'open');

-- name: scope_failure
-- The first job that failed, or the reason of an inner scope that failed. `timed_out` is never a
-- final status of ours, but a script may have set it.
SELECT id, step_path, status, last_error, NULL AS reason, 0 AS rank, seq FROM job_queue
WHERE scope_id = :id AND status IN ('failed', 'dead', 'timed_out')
UNION ALL
SELECT NULL, NULL, NULL, NULL, reason, 1, 0 FROM scopes WHERE parent_id = :id AND status = 'failed'
ORDER BY rank, seq, reason LIMIT 1;

-- name: end_scope
UPDATE scopes SET status = :status, ended_at = :now, reason = :reason
WHERE id = :id AND status = 'open';

-- name: reopen_scope
-- A run of a pipeline with a limit has to take its turn again.
UPDATE scopes SET status = 'open', ended_at = NULL, reason = NULL, displaced_by = NULL,
                  held_since = CASE WHEN limit_key IS NULL THEN NULL ELSE created_at END
WHERE id = :id AND status IN ('failed', 'skipped');

-- name: ended_jobs_of_scope
-- The jobs of a scope and of its inner scopes, each with the response of its last attempt.
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
-- The first jobs of a scope and of its inner scopes.
WITH RECURSIVE inside(id) AS (
  SELECT id FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT j.id AS job_id, j.step_path AS step, j.plugin, j.command, j.status, j.branch, j.attempt,
       j.max_attempts, j.created_at, j.started_at, j.completed_at,
       NULLIF(j.next_retry_at, @never@) AS next_retry_at, j.last_error
FROM inside JOIN job_queue j ON j.scope_id = inside.id ORDER BY j.seq LIMIT :limit;

-- name: instance_of_scope
-- The pipeline instance that a scope belongs to, with its status as callers know it.
WITH RECURSIVE around(id, parent_id, status) AS (
  SELECT id, parent_id, status FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id, s.parent_id, s.status FROM scopes s JOIN around ON s.id = around.parent_id
)
SELECT id, CASE status WHEN 'ended' THEN 'succeeded' ELSE status END
FROM around WHERE parent_id IS NULL;

-- name: unfinished_of_instance
-- The newest queued or running job below a scope: of the scope, of its inner scopes, and all that
-- descend from those.
WITH RECURSIVE inside(id) AS (
  SELECT id FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
), below(id) AS (
  SELECT j.id FROM inside JOIN job_queue j ON j.scope_id = inside.id
  UNION
  SELECT j.id FROM below JOIN job_queue j ON j.parent_job_id = below.id
)
SELECT j.id FROM below JOIN job_queue j ON j.id = below.id
WHERE j.status IN ('queued', 'running') ORDER BY j.seq DESC LIMIT 1;

-- name: result_of_instance
-- The response of its newest job, and of a `:switch` only if there is no other job.
WITH RECURSIVE inside(id) AS (
  SELECT id FROM scopes WHERE id = :id
  UNION ALL
  SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
)
SELECT result FROM job_log WHERE id = (
  SELECT j.id || '-' || j.attempt FROM inside JOIN job_queue j ON j.scope_id = inside.id
  ORDER BY j.plugin = :switch, j.seq DESC LIMIT 1);

-- name: insert_context
@insert_new_context@
ON CONFLICT (id) DO NOTHING;

-- name: insert_new_context
INSERT INTO event_context (id, parent_id, pipeline_name, step_id, accumulated_json, created_at)
VALUES (:id, :parent_id, :pipeline, :step_id, :accumulated, :now);

-- name: context
SELECT accumulated_json FROM event_context WHERE id = :id;

-- name: contexts_by_id
SELECT c.id, c.accumulated_json FROM @given@ JOIN event_context c ON c.id = given.id;

-- name: context_sizes
-- Each with its text, if that is small.
SELECT c.id, octet_length(c.accumulated_json),
       CASE WHEN octet_length(c.accumulated_json) <= 16384 THEN c.accumulated_json END
FROM @given@ JOIN event_context c ON c.id = given.id;

-- name: contexts
SELECT id, parent_id, pipeline_name, step_id, accumulated_json, created_at
FROM event_context WHERE id IN (SELECT event_context_id FROM job_queue WHERE id = :job_id);

-- name: set_context
UPDATE job_queue SET event_context_id = :context_id WHERE id = :id;
