-- name: insert_audit_entry
INSERT INTO audit_log (created_at, actor, source, action, target, details)
VALUES (:now, :actor, :source, :action, :target, :details);

-- name: audit_entries
-- The newest first; a filter that is NULL is not applied. `before` is a cursor.
SELECT id, created_at, actor, source, action, target, details FROM audit_log
WHERE (CAST(:actor AS TEXT) IS NULL OR actor = :actor)
  AND (CAST(:action AS TEXT) IS NULL OR action = :action OR action LIKE :action || '.%')
  AND (CAST(:since AS TEXT) IS NULL OR created_at >= :since)
  AND (CAST(:before AS @big@) IS NULL OR id < :before)
ORDER BY id DESC LIMIT :limit;

-- name: prune_audit_log
-- Among the oldest by sequence, so that no index on the time is needed. A trigger refuses younger
-- rows than a year by the database's clock.
DELETE FROM audit_log WHERE id IN (
  SELECT id FROM (SELECT id, created_at FROM audit_log ORDER BY id LIMIT :window) AS oldest
  WHERE created_at < :before AND created_at <= @a_year_ago@ LIMIT :limit);
