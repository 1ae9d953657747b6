-- name: insert_reminder
INSERT INTO cron_jobs (agent_id, schedule, next_fire_at, payload, is_one_time)
VALUES (:agent_id, :schedule, :next_fire_at, :payload, :is_one_time)
RETURNING id;

-- name: reminders_are_full
SELECT 1 FROM cron_jobs ORDER BY next_fire_at LIMIT 1 OFFSET :most;

-- name: due_reminders
-- Page by page, so that a row that cannot be fired does not block the following ones.
SELECT id, agent_id, schedule, next_fire_at, payload, is_one_time FROM cron_jobs
WHERE next_fire_at <= :now AND (next_fire_at, id) > (:fired_at, :id)
ORDER BY next_fire_at, id LIMIT :limit;

-- name: first_reminder
SELECT min(next_fire_at) FROM cron_jobs WHERE next_fire_at > :after;

-- name: foreign_reminder_times
-- Times that a script wrote in another format, which do not sort by time.
SELECT id, agent_id, next_fire_at FROM cron_jobs
WHERE next_fire_at @not_our_time@ AND id > :after
ORDER BY id LIMIT :limit;

-- name: recurring_reminders
-- Reminders that are not due, by id.
SELECT id, schedule, next_fire_at FROM cron_jobs
WHERE id > :after AND NOT is_one_time AND next_fire_at > :now ORDER BY id LIMIT :limit;

-- name: move_reminder
UPDATE cron_jobs SET next_fire_at = :then WHERE id = :id AND next_fire_at = :next_fire_at;

-- name: delete_fired_reminder
DELETE FROM cron_jobs WHERE id = :id AND next_fire_at = :next_fire_at;

-- name: reminder_sizes
-- Of the rows of `reminders`.
SELECT octet_length(payload) FROM cron_jobs
WHERE id > :after AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)
ORDER BY id LIMIT :limit;

-- name: reminders
SELECT id, agent_id, schedule, next_fire_at,
       CASE WHEN :payloads THEN payload ELSE 'null' END AS payload, is_one_time
FROM cron_jobs
WHERE id > :after AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)
ORDER BY id LIMIT :limit;

-- name: reminder
SELECT id, agent_id, schedule, next_fire_at, payload, is_one_time FROM cron_jobs WHERE id = :id;

-- name: delete_reminder
DELETE FROM cron_jobs WHERE id = :id;
