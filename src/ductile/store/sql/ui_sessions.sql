-- name: insert_ui_session
INSERT INTO ui_sessions (hash, token_hash, created_at, seen_at)
VALUES (:hash, :token_hash, :now, :now);

-- name: ui_sessions
-- The sessions that have neither been idle nor lasted too long.
SELECT hash, token_hash, created_at, seen_at FROM ui_sessions
WHERE seen_at > :idle_before AND created_at > :created_before;

-- name: touch_ui_session
UPDATE ui_sessions SET seen_at = :now WHERE hash = :hash AND seen_at < :now;

-- name: delete_ui_session
DELETE FROM ui_sessions WHERE hash = :hash;

-- name: delete_ui_sessions
DELETE FROM ui_sessions;

-- name: delete_ended_ui_sessions
DELETE FROM ui_sessions WHERE seen_at <= :idle_before OR created_at <= :created_before;
