-- Rows that wait for a time which was computed as a delay, page by page, to be moved when the clock
-- was set back.

-- name: later_retries
SELECT id, next_retry_at FROM job_queue
WHERE status = 'queued' AND next_retry_at IS NOT NULL AND next_retry_at > :now
  AND next_retry_at < @never@ AND id > :after
ORDER BY id LIMIT :limit;

-- name: move_retry
UPDATE job_queue SET next_retry_at = :then
WHERE id = :id AND status = 'queued' AND next_retry_at = :before;

-- name: later_reminders
-- Recurring reminders follow the calendar.
SELECT id, next_fire_at FROM cron_jobs
WHERE is_one_time AND next_fire_at > :now AND id > :after ORDER BY id LIMIT :limit;

-- name: move_one_time_reminder
UPDATE cron_jobs SET next_fire_at = :then WHERE id = :id AND next_fire_at = :before;

-- name: later_deliveries
SELECT id, next_retry_at FROM webhook_deliveries
WHERE status IN ('pending', 'failed') AND next_retry_at > :now AND id > :after
ORDER BY id LIMIT :limit;

-- name: move_delivery
UPDATE webhook_deliveries SET next_retry_at = :then WHERE id = :id AND next_retry_at = :before;

-- name: later_relays
SELECT id, next_retry_at FROM relay_deliveries
WHERE status IN ('pending', 'failed') AND next_retry_at > :now AND id > :after
ORDER BY id LIMIT :limit;

-- name: move_relay
UPDATE relay_deliveries SET next_retry_at = :then WHERE id = :id AND next_retry_at = :before;

-- name: later_closed_keys
-- A plugin's name has no slash. By the primary key: there can be many keys.
SELECT plugin || '/' || limit_key, until FROM closed_keys
WHERE until > :now
  AND (plugin, limit_key) > (substr(CAST(:after AS TEXT), 1, @place@(CAST(:after AS TEXT), '/') - 1),
    substr(CAST(:after AS TEXT), @place@(CAST(:after AS TEXT), '/') + 1))
ORDER BY plugin, limit_key LIMIT :limit;

-- name: move_closed_key
UPDATE closed_keys SET until = :then
WHERE plugin = substr(CAST(:id AS TEXT), 1, @place@(CAST(:id AS TEXT), '/') - 1)
  AND limit_key = substr(CAST(:id AS TEXT), @place@(CAST(:id AS TEXT), '/') + 1)
  AND until = :before;

-- name: later_rates
SELECT plugin || '/' || rate_key, used_until FROM rates
WHERE used_until > :now
  AND (plugin, rate_key) > (substr(CAST(:after AS TEXT), 1, @place@(CAST(:after AS TEXT), '/') - 1),
    substr(CAST(:after AS TEXT), @place@(CAST(:after AS TEXT), '/') + 1))
ORDER BY plugin, rate_key LIMIT :limit;

-- name: move_rate
UPDATE rates SET used_until = :then
WHERE plugin = substr(CAST(:id AS TEXT), 1, @place@(CAST(:id AS TEXT), '/') - 1)
  AND rate_key = substr(CAST(:id AS TEXT), @place@(CAST(:id AS TEXT), '/') + 1)
  AND used_until = :before;
