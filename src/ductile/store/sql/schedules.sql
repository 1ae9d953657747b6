-- name: ensure_entry
INSERT INTO schedule_entries (plugin, schedule_id, rule, first_seen)
VALUES (:plugin, :schedule_id, :rule, :now)
ON CONFLICT (plugin, schedule_id) DO NOTHING;

-- name: import_entry
-- An imported entry, which has no rule until it is configured. No changed row means that the
-- ledger already has the entry.
INSERT INTO schedule_entries (plugin, schedule_id, rule, first_seen, last_fire, last_fired_at,
                              last_success_at, paused, exhausted)
VALUES (:plugin, :schedule_id, '', :first_seen, :last_fired_at, :last_fired_at,
        :last_success_at, :paused, :exhausted)
ON CONFLICT (plugin, schedule_id) DO NOTHING;

-- name: rewrite_entry
UPDATE schedule_entries
SET rule = :rule, first_seen = :first_seen, last_fire = :last_fire,
    last_fired_at = :last_fired_at, last_passed = :last_passed,
    last_success_at = :last_success_at, exhausted = :exhausted
WHERE plugin = :plugin AND schedule_id = :schedule_id;

-- name: withdraw_entry
UPDATE schedule_entries SET rule = :rule
WHERE plugin = :plugin AND schedule_id = :schedule_id AND rule = :before;

-- name: entry
SELECT first_seen, last_fire, last_fired_at, last_passed, last_success_at, paused, exhausted,
       rule
FROM schedule_entries WHERE plugin = :plugin AND schedule_id = :schedule_id;

-- name: entry_for_update
SELECT first_seen, last_fire, last_fired_at, last_passed, last_success_at, paused, exhausted,
       rule
FROM schedule_entries WHERE plugin = :plugin AND schedule_id = :schedule_id @for_update@;

-- name: entries
SELECT * FROM schedule_entries ORDER BY plugin, schedule_id;

-- name: move_entry
UPDATE schedule_entries
SET last_fire = :last_fire, last_fired_at = :last_fired_at, last_passed = :last_passed,
    exhausted = :exhausted
WHERE plugin = :plugin AND schedule_id = :schedule_id;

-- name: entry_succeeded
UPDATE schedule_entries SET last_success_at = :now
WHERE plugin = :plugin AND schedule_id = :schedule_id;

-- name: pause_entry
UPDATE schedule_entries SET paused = :paused
WHERE plugin = :plugin AND schedule_id = :schedule_id;

-- name: slot_fired
-- No changed row means that this occurrence has already fired.
INSERT INTO schedule_slots (plugin, schedule_id, slot, job_id, created_at)
VALUES (:plugin, :schedule_id, :slot, :job_id, :now)
ON CONFLICT (plugin, schedule_id, slot)
DO UPDATE SET job_id = excluded.job_id, reason = NULL, created_at = excluded.created_at
WHERE schedule_slots.job_id IS NULL;

-- name: slots_passed
-- An occurrence that was held back before keeps its reason.
INSERT INTO schedule_slots (plugin, schedule_id, slot, reason, created_at)
SELECT :plugin, :schedule_id, given.id, :reason, :now FROM @given@ WHERE TRUE
ON CONFLICT (plugin, schedule_id, slot) DO NOTHING;

-- name: newest_slot
SELECT slot, reason, created_at FROM schedule_slots
WHERE plugin = :plugin AND schedule_id = :schedule_id ORDER BY slot DESC LIMIT 1;

-- name: slots_since
SELECT s.slot, s.reason, s.job_id, s.created_at, j.status
FROM schedule_slots s LEFT JOIN job_queue j ON j.id = s.job_id
WHERE s.plugin = :plugin AND s.schedule_id = :schedule_id AND s.slot >= :since
ORDER BY s.slot;

-- name: slots_decided_since
-- Also those decided since: a time that was past, or a run that was caught up, is older.
SELECT s.slot, s.reason, s.job_id, s.created_at, j.status
FROM schedule_slots s LEFT JOIN job_queue j ON j.id = s.job_id
WHERE s.plugin = :plugin AND s.schedule_id = :schedule_id
  AND (s.slot >= :since OR s.created_at >= :since)
ORDER BY s.slot;

-- name: entry_outstanding
-- The entry's own queued and running jobs.
SELECT status, count(*) FROM job_queue
WHERE plugin = :plugin AND schedule_id = :schedule_id AND status IN ('queued', 'running')
GROUP BY status;

-- name: other_polls
-- Outstanding jobs of the plugin and command that the entry did not make: of other entries, and of
-- other producers. A `handle` that no schedule made comes from an event, and is not a poll. One
-- query per index: for both at once SQLite reads every row of job_queue.
SELECT count(*) FROM job_queue
WHERE plugin = :plugin AND schedule_id IS NOT NULL AND status IN ('queued', 'running')
  AND schedule_id <> :schedule_id AND command = :command
UNION ALL
SELECT count(*) FROM job_queue
WHERE plugin = :plugin AND command = :command
  AND schedule_id IS NULL AND command <> 'handle' AND status IN ('queued', 'running');

-- name: scheduled_outstanding
-- Scheduled jobs of a plugin and command, of any entry.
SELECT count(*) FROM job_queue
WHERE plugin = :plugin AND schedule_id IS NOT NULL AND status IN ('queued', 'running')
  AND command = :command;

-- name: entry_jobs
SELECT @job@ FROM job_queue
WHERE plugin = :plugin AND schedule_id = :schedule_id AND status IN ('queued', 'running');

-- name: slot_started
-- The first job of the run that an occurrence has started.
UPDATE schedule_slots SET job_id = :job_id
WHERE plugin = :plugin AND schedule_id = :schedule_id AND slot = :slot;

-- name: schedule_run
UPDATE scopes SET schedule_id = :schedule_id WHERE id = :id;

-- name: open_scheduled_runs
SELECT id FROM scopes
WHERE pipeline = :pipeline AND schedule_id = :schedule_id
  AND schedule_id IS NOT NULL AND status = 'open';

-- name: run_succeeded
UPDATE schedule_entries SET last_success_at = :now
WHERE plugin = 'pipeline:' || CAST(:pipeline AS TEXT) AND schedule_id = :schedule_id;

-- name: schedule_job
UPDATE job_queue SET schedule_id = :schedule_id, slot = :slot WHERE id = :id;
