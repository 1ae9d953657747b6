-- Runs of a pipeline with a limit. Those that are open and not held count; the others wait. In SQLite,
-- CROSS JOIN reads its tables in this order: otherwise it would read all jobs to find those of a run.

-- name: limited_run
SELECT id, pipeline, limit_key, held_since FROM scopes
WHERE id = :id AND status = 'open' AND limit_key IS NOT NULL;

-- name: hold_run
UPDATE scopes SET limit_key = :limit_key, held_since = :since WHERE id = :id;

-- name: running_runs
-- The runs of a key that count, the oldest first.
SELECT id, displaced_by FROM scopes
WHERE pipeline = :pipeline AND limit_key = :limit_key AND status = 'open' AND held_since IS NULL
ORDER BY created_at, id LIMIT :limit;

-- name: first_held_runs
-- The runs of a key that wait, in their order, without those whose event is still debounced.
SELECT id FROM scopes
WHERE pipeline = :pipeline AND limit_key = :limit_key AND status = 'open'
  AND held_since IS NOT NULL AND held_since < @never@
ORDER BY held_since, id LIMIT :limit;

-- name: older_held_runs
SELECT id FROM scopes
WHERE pipeline = :pipeline AND limit_key = :limit_key AND status = 'open'
  AND held_since IS NOT NULL AND (held_since, id) < (:since, :id)
ORDER BY held_since, id LIMIT :limit;

-- name: admit_run
UPDATE scopes SET held_since = NULL
WHERE id = :id AND status = 'open' AND held_since IS NOT NULL;

-- name: release_jobs_of_run
-- Not those whose step waits for an approval, an event or a time.
UPDATE job_queue SET next_retry_at = NULL, set_aside = @in_order@
WHERE id IN (
  WITH RECURSIVE inside(id) AS (
    SELECT id FROM scopes WHERE id = :id
    UNION ALL
    SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
  )
  SELECT j.id FROM inside CROSS JOIN job_queue j
  WHERE j.scope_id = inside.id AND j.status = 'queued'
    AND (j.next_retry_at = @never@ OR (j.debounce_series IS NOT NULL AND j.next_retry_at IS NOT NULL))
    AND NOT EXISTS (SELECT 1 FROM waits w WHERE w.job_id = j.id AND w.attempt = j.attempt
                    AND w.status = 'waiting'));

-- name: park_jobs_of_run
-- The ready jobs of a run that has to wait: no claim takes them from now on.
UPDATE job_queue SET next_retry_at = @never@
WHERE id IN (
  WITH RECURSIVE inside(id) AS (
    SELECT id FROM scopes WHERE id = :id
    UNION ALL
    SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
  )
  SELECT j.id FROM inside CROSS JOIN job_queue j
  WHERE j.scope_id = inside.id AND j.status = 'queued'
    AND (j.next_retry_at IS NULL OR j.debounce_series IS NOT NULL));

-- name: due_debounced_runs
-- Runs whose first event is not debounced any longer.
SELECT s.id FROM scopes s CROSS JOIN job_queue j
WHERE j.scope_id = s.id AND s.status = 'open' AND s.held_since = @never@ AND s.pipeline NOT IN (@paused@)
  AND j.status = 'queued' AND (j.next_retry_at IS NULL OR j.next_retry_at <= :now
                               OR (j.next_retry_at > :horizon AND j.next_retry_at < @never@))
ORDER BY j.next_retry_at LIMIT :limit;

-- name: displace_run
UPDATE scopes SET displaced_by = :by
WHERE id = :id AND status = 'open' AND displaced_by IS NULL;

-- name: displaced_run
SELECT id, displaced_by FROM scopes
WHERE id = :id AND status = 'open' AND displaced_by IS NOT NULL;

-- name: displaced_runs
SELECT id, displaced_by FROM scopes
WHERE status = 'open' AND displaced_by IS NOT NULL AND id > :after
  AND pipeline NOT IN (@paused@)
ORDER BY id LIMIT :limit;

-- name: end_scopes_of_run
-- All of a run that never began, so that none of its splits continues.
UPDATE scopes SET status = 'skipped', reason = :reason, ended_at = :now
WHERE status = 'open' AND id IN (
  WITH RECURSIVE inside(id) AS (
    SELECT id FROM scopes WHERE parent_id = :id
    UNION ALL
    SELECT s.id FROM scopes s JOIN inside ON s.parent_id = inside.id
  )
  SELECT id FROM inside);

-- name: limited_pipelines
-- The pipelines with runs that wait: a loose index scan.
WITH RECURSIVE found(pipeline) AS (
  SELECT (SELECT min(pipeline) FROM scopes WHERE status = 'open' AND held_since IS NOT NULL)
  UNION ALL
  SELECT (SELECT min(pipeline) FROM scopes
          WHERE status = 'open' AND held_since IS NOT NULL AND pipeline > found.pipeline)
  FROM found WHERE found.pipeline IS NOT NULL
)
SELECT pipeline FROM found WHERE pipeline IS NOT NULL;

-- name: first_held_of_keys
-- Of each key of a pipeline the next run that waits, and since when: it may have been retried, and
-- with a priority its place is before its start. A loose index scan.
WITH RECURSIVE found(limit_key) AS (
  SELECT (SELECT min(limit_key) FROM scopes
          WHERE status = 'open' AND held_since IS NOT NULL AND pipeline = :pipeline)
  UNION ALL
  SELECT (SELECT min(limit_key) FROM scopes
          WHERE status = 'open' AND held_since IS NOT NULL AND pipeline = :pipeline
            AND limit_key > found.limit_key)
  FROM found WHERE found.limit_key IS NOT NULL
)
SELECT s.id, s.limit_key, CASE WHEN s.created_at > s.held_since THEN s.created_at ELSE s.held_since END
FROM found CROSS JOIN scopes s
WHERE s.id = (SELECT first.id FROM scopes first
              WHERE first.status = 'open' AND first.pipeline = :pipeline
                AND first.limit_key = found.limit_key
                AND first.held_since IS NOT NULL AND first.held_since < @never@
              ORDER BY first.held_since, first.id LIMIT 1);

-- name: open_run_keys
-- The keys of a pipeline with runs that wait although fewer than `most` count.
WITH RECURSIVE found(limit_key) AS (
  SELECT (SELECT min(limit_key) FROM scopes
          WHERE status = 'open' AND held_since IS NOT NULL AND pipeline = :pipeline)
  UNION ALL
  SELECT (SELECT min(limit_key) FROM scopes
          WHERE status = 'open' AND held_since IS NOT NULL AND pipeline = :pipeline
            AND limit_key > found.limit_key)
  FROM found WHERE found.limit_key IS NOT NULL
)
SELECT limit_key FROM found WHERE limit_key IS NOT NULL
  AND EXISTS (SELECT 1 FROM scopes s
              WHERE s.status = 'open' AND s.pipeline = :pipeline
                AND s.limit_key = found.limit_key
                AND s.held_since IS NOT NULL AND s.held_since < @never@)
  AND (SELECT count(*) FROM scopes s
       WHERE s.status = 'open' AND s.pipeline = :pipeline AND s.limit_key = found.limit_key
         AND s.held_since IS NULL) < :most
LIMIT :limit;

-- name: held_runs_of_jobs
-- Of these jobs those whose run waits: the run, its pipeline, key and place.
WITH RECURSIVE around(job_id, id, parent_id) AS (
  SELECT j.id, s.id, s.parent_id
  FROM @given@ JOIN job_queue j ON j.id = given.id JOIN scopes s ON s.id = j.scope_id
  UNION ALL
  SELECT around.job_id, s.id, s.parent_id FROM scopes s JOIN around ON s.id = around.parent_id
)
SELECT around.job_id, s.id, s.pipeline, s.limit_key, s.held_since
FROM around CROSS JOIN scopes s
WHERE s.id = around.id AND s.status = 'open' AND s.held_since IS NOT NULL;

-- name: held_runs
-- Of these runs those that wait.
SELECT s.id, s.id, s.pipeline, s.limit_key, s.held_since FROM @given@ JOIN scopes s ON s.id = given.id
WHERE s.status = 'open' AND s.held_since IS NOT NULL;
