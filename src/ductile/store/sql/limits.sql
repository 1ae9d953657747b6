-- name: running_with_limit_keys
-- The running jobs of a plugin, the oldest first.
SELECT limit_key, started_at, command, id FROM job_queue
WHERE status = 'running' AND plugin = :plugin ORDER BY started_at LIMIT :limit;

-- name: set_limit_key
UPDATE job_queue SET limit_key = :limit_key WHERE id = :id;

-- name: set_place
-- Place a job before the first job that was enqueued since then.
UPDATE job_queue SET set_aside = 2, place = (
  SELECT first.seq - 1 FROM job_queue first WHERE first.created_at >= :since
  ORDER BY first.created_at, first.seq LIMIT 1)
WHERE id = :id;

-- name: limit_key_of
SELECT limit_key FROM job_queue WHERE id = :id;

-- name: limit_keys_of
SELECT id, limit_key FROM job_queue WHERE id @is_given@;

-- name: running_with_limit_key
-- The running jobs of a plugin with their limit keys, the oldest first.
SELECT limit_key, @job@ FROM job_queue
WHERE seq IN (SELECT r.seq FROM job_queue r WHERE r.status = 'running' AND r.plugin = :plugin)
ORDER BY started_at, seq;

-- name: queued_with_limit_key
-- The queued jobs of a limit key that are older than the given one, without those of a paused
-- pipeline.
SELECT @job@ FROM job_queue
WHERE plugin = :plugin AND limit_key = :limit_key AND status = 'queued' AND next_retry_at IS NULL
  AND set_aside <> 0 AND seq < :before AND (pipeline = '' OR pipeline NOT IN (@paused@))
ORDER BY seq LIMIT :limit;

-- name: displace_job
-- Once per start: no row if the job has been asked before.
UPDATE job_queue SET displaced_attempt = attempt
WHERE id = :id AND status = 'running' AND attempt = :attempt
  AND (displaced_attempt IS NULL OR displaced_attempt <> attempt);

-- name: rates
-- Of the given rate keys.
SELECT rate_key, used_until FROM rates
WHERE plugin = :plugin AND rate_key @is_given@ AND used_until > :now;

-- name: store_rate
INSERT INTO rates (plugin, rate_key, used_until) VALUES (:plugin, :rate_key, :used_until)
ON CONFLICT (plugin, rate_key) DO UPDATE SET used_until = excluded.used_until;

-- name: has_used_rates
SELECT 1 FROM rates WHERE used_until <= :now LIMIT 1;

-- name: delete_used_rates
DELETE FROM rates WHERE used_until <= :now;

-- name: closed_keys
-- Of the given limit keys.
SELECT limit_key, until FROM closed_keys
WHERE plugin = :plugin AND limit_key @is_given@
  AND until > :now AND until <= :latest;

-- name: closed_plugins
-- The plugins that have closed a limit key, which may be open again: a loose index scan.
WITH RECURSIVE found(plugin) AS (
  SELECT (SELECT min(plugin) FROM closed_keys)
  UNION ALL
  SELECT (SELECT min(plugin) FROM closed_keys WHERE plugin > found.plugin)
  FROM found WHERE found.plugin IS NOT NULL
)
SELECT plugin FROM found WHERE plugin IS NOT NULL;

-- name: close_key
-- A later time wins, unless it is too late to be right.
INSERT INTO closed_keys (plugin, limit_key, until) VALUES (:plugin, :limit_key, :until)
ON CONFLICT (plugin, limit_key) DO UPDATE SET until = excluded.until
WHERE closed_keys.until < excluded.until OR closed_keys.until > :latest;

-- name: delete_open_keys
DELETE FROM closed_keys WHERE until <= :now OR until > :latest;

-- name: next_open_key
SELECT min(until) FROM closed_keys;
