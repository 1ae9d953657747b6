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

-- name: next_pause_end
SELECT min(until) FROM pauses WHERE until IS NOT NULL;
