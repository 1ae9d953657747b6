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
