-- name: pauses
SELECT kind, name, paused_at, paused_by, reason, until FROM pauses ORDER BY kind, name;

-- name: pause
SELECT kind, name, paused_at, paused_by, reason, until FROM pauses
WHERE kind = :kind AND name = :name;

-- name: store_pause
-- A second pause replaces the reason and the end of the first.
INSERT INTO pauses (kind, name, paused_at, paused_by, reason, until)
VALUES (:kind, :name, :now, :by, :reason, :until)
ON CONFLICT (kind, name) DO UPDATE
SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, reason = excluded.reason,
    until = excluded.until;

-- name: delete_pause
-- With a time: only if the pause has ended by then.
DELETE FROM pauses WHERE kind = :kind AND name = :name
  AND (CAST(:ended_by AS TEXT) IS NULL OR until <= :ended_by);

-- name: store_pause_end
INSERT INTO ended_pauses (kind, name, ended_at) VALUES (:kind, :name, :at)
ON CONFLICT (kind, name) DO UPDATE SET ended_at = excluded.ended_at;

-- name: pause_ends
-- Also of pauses whose end has come and that are about to be removed.
SELECT kind, name, ended_at FROM ended_pauses
UNION ALL
SELECT kind, name, until FROM pauses WHERE until <= :now;

-- name: first_queued_pipelines
-- The pipelines of a plugin's oldest ready jobs.
SELECT id, pipeline FROM job_queue
WHERE plugin = :plugin AND status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
ORDER BY seq LIMIT :limit;

-- name: first_placed_pipelines
SELECT id, pipeline FROM job_queue
WHERE plugin = :plugin AND status = 'queued' AND next_retry_at IS NULL AND set_aside = 2
ORDER BY place, seq LIMIT :limit;

-- name: return_jobs
-- Return the jobs of a pipeline that were set aside to the order of the queue. A job that another
-- transaction has locked stays set aside, and is found there.
UPDATE job_queue SET set_aside = @in_order@
WHERE seq IN (SELECT j.seq FROM job_queue j
              WHERE j.pipeline = :pipeline AND j.status = 'queued' AND j.next_retry_at IS NULL
                AND j.set_aside <> 0 @skip_locked@);

-- name: next_pause_end
SELECT min(until) FROM pauses WHERE until IS NOT NULL;
