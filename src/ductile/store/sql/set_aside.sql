-- Given jobs are found by their ids. CASE hides the other conditions from the planner of PostgreSQL:
-- until it has statistics of a new backlog, it would read all queued jobs to find them.

-- name: set_jobs_aside
-- Without those that another node has locked, because it may wait for this one.
UPDATE job_queue SET set_aside = 1
WHERE id IN (SELECT held.id FROM job_queue held
             WHERE held.id @is_given@
               AND CASE WHEN held.status = 'queued' THEN held.set_aside END <> 1 @skip_locked@);

-- name: set_jobs_aside [postgres]
-- By an array, as the given ids.
UPDATE job_queue SET set_aside = 1
WHERE id = ANY(ARRAY(
  SELECT held.id FROM job_queue held
  WHERE held.id @is_given@
    AND CASE WHEN held.status = 'queued' THEN held.set_aside END <> 1 @skip_locked@));

-- name: add_set_aside_keys
-- The keys of these jobs. The stored place is at most that of the first job.
INSERT INTO set_aside_keys (plugin, limit_key, pipeline, place, rate_key)
SELECT j.plugin, j.limit_key, j.pipeline, min(coalesce(j.place, j.seq)), @rate_part@
FROM job_queue j
WHERE j.id @is_given@ AND CASE WHEN j.status = 'queued' THEN j.set_aside END = 1
GROUP BY j.plugin, j.limit_key, j.pipeline
ON CONFLICT (plugin, limit_key, pipeline) DO UPDATE SET place = excluded.place
WHERE excluded.place < set_aside_keys.place;

-- name: add_rate_rows
-- The rows of the rate keys of these jobs. They may lead to a job now.
INSERT INTO set_aside_keys (plugin, limit_key, pipeline, place)
SELECT j.plugin, @separator@ || (@rate_part@), @separator@, min(coalesce(j.place, j.seq))
FROM job_queue j
WHERE j.id @is_given@ AND CASE WHEN j.status = 'queued' THEN j.set_aside END = 1
  AND @rate_part@ IS NOT NULL
GROUP BY j.plugin, @rate_part@
ON CONFLICT (plugin, limit_key, pipeline) DO UPDATE
SET held_until = NULL, held_by = NULL,
    place = CASE WHEN excluded.place < set_aside_keys.place
                 THEN excluded.place ELSE set_aside_keys.place END;

-- name: open_rate_row
INSERT INTO set_aside_keys (plugin, limit_key, pipeline, place)
VALUES (:plugin, :limit_key, :pipeline, :place)
ON CONFLICT (plugin, limit_key, pipeline) DO UPDATE
SET held_until = NULL, held_by = NULL,
    place = CASE WHEN excluded.place < set_aside_keys.place
                 THEN excluded.place ELSE set_aside_keys.place END;

-- name: first_keys_of_rate
SELECT limit_key, pipeline, place FROM set_aside_keys
WHERE plugin = :plugin AND rate_key = :rate_key AND held_until IS NULL AND full_key IS NULL
  AND pipeline NOT IN (@paused@)
ORDER BY place LIMIT :limit OFFSET :passed;

-- name: next_of_rate
-- Whether a rate key has further keys, and when the first of those opens that are closed or paused.
SELECT limit_key, held_until FROM set_aside_keys
WHERE plugin = :plugin AND rate_key = :rate_key
ORDER BY held_until IS NULL, held_until LIMIT 1;

-- name: first_set_aside_keys
SELECT limit_key, pipeline, place FROM set_aside_keys
WHERE plugin = :plugin AND held_until IS NULL AND full_key IS NULL AND rate_key IS NULL
  AND pipeline NOT IN (@paused@)
ORDER BY place LIMIT :limit OFFSET :passed;

-- name: first_place_of_key
-- The place of the first job set aside of a key, whether it may run or not.
SELECT coalesce(j.place, j.seq) FROM job_queue j
WHERE j.plugin = :plugin AND j.limit_key = :limit_key AND j.pipeline = :pipeline
  AND j.status = 'queued' AND j.next_retry_at IS NULL AND j.set_aside <> 0
ORDER BY coalesce(j.place, j.seq), j.seq LIMIT 1;

-- name: move_key
UPDATE set_aside_keys SET place = :place
WHERE plugin = :plugin AND limit_key = :limit_key AND pipeline = :pipeline;

-- name: delete_key
DELETE FROM set_aside_keys
WHERE plugin = :plugin AND limit_key = :limit_key AND pipeline = :pipeline;

-- name: hold_key
UPDATE set_aside_keys SET held_until = :until, held_by = :limits, full_key = :full_key
WHERE plugin = :plugin AND limit_key = :limit_key AND pipeline = :pipeline;

-- name: set_aside_overview
-- What a claim needs to know of a plugin's jobs set aside, in one query. 'due': keys whose time has
-- come or was computed under other limits. 'full': the concurrency keys that were full when a claim
-- met them. 'first': the first keys of the order. 'placed': whether any job has a priority. Each part
-- uses an index of its own.
WITH RECURSIVE found(full_key) AS (
  SELECT (SELECT min(full_key) FROM set_aside_keys
          WHERE plugin = :plugin AND full_key IS NOT NULL)
  UNION ALL
  SELECT (SELECT min(full_key) FROM set_aside_keys
          WHERE plugin = :plugin AND full_key IS NOT NULL AND full_key > found.full_key)
  FROM found WHERE found.full_key IS NOT NULL
)
SELECT 'due', limit_key, pipeline, place FROM (
  SELECT limit_key, pipeline, place FROM set_aside_keys
  WHERE plugin = :plugin AND held_until IS NOT NULL AND held_until <= :now LIMIT :limit) AS due
UNION ALL
SELECT 'due', limit_key, pipeline, place FROM (
  SELECT limit_key, pipeline, place FROM set_aside_keys
  WHERE plugin = :plugin AND held_until IS NOT NULL AND held_until > :latest
  LIMIT :limit) AS impossible
UNION ALL
SELECT 'due', limit_key, pipeline, place FROM (
  SELECT limit_key, pipeline, place FROM set_aside_keys
  WHERE plugin = :plugin AND held_until IS NOT NULL AND held_by < :limits LIMIT :limit) AS lower
UNION ALL
SELECT 'due', limit_key, pipeline, place FROM (
  SELECT limit_key, pipeline, place FROM set_aside_keys
  WHERE plugin = :plugin AND held_until IS NOT NULL AND held_by > :limits LIMIT :limit) AS higher
UNION ALL
SELECT 'full', full_key, '', 0 FROM found WHERE full_key IS NOT NULL
UNION ALL
SELECT 'first', limit_key, pipeline, place FROM (
  SELECT limit_key, pipeline, place FROM set_aside_keys
  WHERE plugin = :plugin AND held_until IS NULL AND full_key IS NULL AND rate_key IS NULL
    AND pipeline NOT IN (@paused@)
  ORDER BY place LIMIT :first) AS first
UNION ALL
SELECT 'placed', '', '', 0 WHERE EXISTS (
  SELECT 1 FROM job_queue WHERE plugin = :plugin AND status = 'queued' AND next_retry_at IS NULL
    AND set_aside = 2);

-- name: rows_of_full_key
SELECT limit_key, pipeline FROM set_aside_keys
WHERE plugin = :plugin AND full_key = :full_key LIMIT :limit;

-- name: release_pipeline_keys
-- The pause of a pipeline has ended or changed.
-- The rows of rate keys may lead to it.
UPDATE set_aside_keys SET held_until = NULL
WHERE pipeline IN (:pipeline, @separator@) AND held_until IS NOT NULL;

-- name: lost_jobs
-- Jobs set aside that no row leads to: a node of an earlier version, or a script, has set them aside.
SELECT j.id FROM job_queue j
WHERE j.status = 'queued' AND j.next_retry_at IS NULL AND j.set_aside <> 0
  AND j.set_aside = 1
  AND NOT EXISTS (SELECT 1 FROM set_aside_keys k
                  WHERE k.plugin = j.plugin AND k.limit_key = j.limit_key
                    AND k.pipeline = j.pipeline
                    AND (k.rate_key IS NULL OR EXISTS (
                      SELECT 1 FROM set_aside_keys r
                      WHERE r.plugin = k.plugin AND r.pipeline = @separator@
                        AND r.limit_key = @separator@ || k.rate_key)))
LIMIT :limit;

-- name: return_lost_jobs
UPDATE job_queue SET set_aside = @in_order@
WHERE id @is_given@ AND CASE WHEN status = 'queued' THEN set_aside END = 1;
