-- Reads of `store/verify.py`, window by window. Each window is one snapshot, so that a ledger can
-- be verified while it is written.

-- name: applied_migrations
SELECT number, checksum FROM schema_migrations ORDER BY number;

-- name: migration_names
SELECT number, name FROM schema_migrations ORDER BY number;

-- name: schema_objects [sqlite]
-- Tables with their columns, indexes and triggers, without those that SQLite creates itself.
SELECT m.type, m.name, coalesce(c.name, '')
FROM sqlite_master m LEFT JOIN pragma_table_info(m.name) c ON m.type = 'table'
WHERE m.name NOT LIKE 'sqlite%' AND m.type IN ('table', 'index', 'trigger');

-- name: schema_objects [postgres]
SELECT 'table', table_name, column_name FROM information_schema.columns
WHERE table_schema = current_schema()
UNION ALL
SELECT 'index', indexname, '' FROM pg_indexes WHERE schemaname = current_schema()
UNION ALL
SELECT 'trigger', t.tgname, '' FROM pg_trigger t
  JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND NOT t.tgisinternal;

-- name: broken_indexes [postgres]
SELECT i.indexrelid::regclass::text FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND NOT (i.indisvalid AND i.indisready);

-- name: retained_since
-- The time from which each table is complete: older rows may be pruned.
SELECT (SELECT created_at FROM job_transitions ORDER BY id LIMIT 1),
       (SELECT completed_at FROM job_log ORDER BY seq LIMIT 1),
       (SELECT min(completed_at) FROM job_queue
        WHERE completed_at IS NOT NULL AND dedupe_key IS NULL);

-- name: running_by_owner
SELECT owner, count(*) FROM job_queue WHERE status = 'running' GROUP BY owner;

-- name: newest_jobs_after
SELECT coalesce((SELECT seq FROM job_queue ORDER BY seq DESC LIMIT 1 OFFSET :newest), 0);

-- name: newest_logs_after
SELECT coalesce((SELECT seq FROM job_log ORDER BY seq DESC LIMIT 1 OFFSET :newest), 0);

-- name: newest_contexts_after
SELECT coalesce((SELECT id FROM event_context ORDER BY id DESC LIMIT 1 OFFSET :newest), '');

-- name: newest_scopes_after
SELECT coalesce((SELECT id FROM scopes ORDER BY id DESC LIMIT 1 OFFSET :newest), '');

-- name: newest_webhook_deliveries_after
SELECT coalesce((SELECT id FROM webhook_deliveries ORDER BY id DESC LIMIT 1 OFFSET :newest), 0);

-- name: newest_relay_deliveries_after
SELECT coalesce((SELECT id FROM relay_deliveries ORDER BY id DESC LIMIT 1 OFFSET :newest), '');

-- name: verify_jobs
SELECT j.seq, j.id, j.status, j.attempt, j.owner, j.created_at, j.started_at, j.completed_at,
       j.next_retry_at,
       (SELECT l.status FROM job_log l WHERE l.id = j.id || '-' || j.attempt) AS logged,
       (SELECT l.status FROM job_log l WHERE l.id = j.id || '-' || (j.attempt - 1)) AS logged_before,
       (SELECT l.status FROM job_log l WHERE l.id = j.id || '-0') AS logged_unrun,
       CASE WHEN j.parent_job_id IS NULL
              OR EXISTS (SELECT 1 FROM job_queue p WHERE p.id = j.parent_job_id)
            THEN NULL ELSE j.parent_job_id END AS lost_parent,
       CASE WHEN j.scope_id IS NULL OR EXISTS (SELECT 1 FROM scopes s WHERE s.id = j.scope_id)
            THEN NULL ELSE j.scope_id END AS lost_scope,
       CASE WHEN j.entered_context_id IS NULL
              OR EXISTS (SELECT 1 FROM event_context c WHERE c.id = j.entered_context_id)
            THEN NULL ELSE j.entered_context_id END AS lost_context,
       CASE WHEN j.owner IS NULL OR EXISTS (SELECT 1 FROM boots b WHERE b.id = j.owner)
            THEN NULL ELSE j.owner END AS lost_owner,
       CASE WHEN j.next_retry_at = @never@ AND NOT EXISTS (
              SELECT 1 FROM waits w
              WHERE w.job_id = j.id AND w.attempt = j.attempt AND w.status = 'waiting')
              AND NOT EXISTS (
                WITH RECURSIVE around(id, parent_id, held) AS (
                  SELECT s.id, s.parent_id, s.held_since FROM scopes s WHERE s.id = j.scope_id
                  UNION ALL
                  SELECT s.id, s.parent_id, s.held_since
                  FROM scopes s JOIN around ON s.id = around.parent_id
                )
                SELECT 1 FROM around WHERE held IS NOT NULL)
            THEN 1 ELSE 0 END AS lost_wait,
       CASE WHEN j.status = 'queued' AND j.next_retry_at IS NULL AND j.set_aside = 1
              AND NOT EXISTS (
                SELECT 1 FROM set_aside_keys k
                WHERE k.plugin = j.plugin AND k.limit_key = j.limit_key
                  AND k.pipeline = j.pipeline AND k.place <= coalesce(j.place, j.seq))
            THEN 1 ELSE 0 END AS lost_key
FROM job_queue j WHERE j.seq > :after ORDER BY j.seq LIMIT :limit;

-- name: verify_transitions
-- The transitions of the jobs of one window, in order.
SELECT t.job_id, t.from_status, t.to_status FROM job_transitions t
WHERE t.job_id IN (SELECT id FROM job_queue WHERE seq > :after AND seq <= :upto)
ORDER BY t.job_id, t.id;

-- name: verify_logs
SELECT l.seq, l.id, l.job_id, l.attempt,
       CASE WHEN l.id = l.job_id || '-' || l.attempt THEN 1 ELSE 0 END AS named, j.attempt
FROM job_log l LEFT JOIN job_queue j ON j.id = l.job_id
WHERE l.seq > :after ORDER BY l.seq LIMIT :limit;

-- name: verify_contexts
SELECT c.id, c.parent_id, c.accumulated_json, p.accumulated_json
FROM event_context c LEFT JOIN event_context p ON p.id = c.parent_id
WHERE c.id > :after ORDER BY c.id LIMIT :limit;

-- name: verify_scopes
SELECT s.id, s.status, s.ended_at,
       CASE WHEN s.parent_id IS NULL OR EXISTS (SELECT 1 FROM scopes p WHERE p.id = s.parent_id)
            THEN NULL ELSE s.parent_id END AS lost_parent,
       CASE WHEN s.context_id IS NULL
              OR EXISTS (SELECT 1 FROM event_context c WHERE c.id = s.context_id)
            THEN NULL ELSE s.context_id END AS lost_context,
       CASE WHEN EXISTS (SELECT 1 FROM job_queue j WHERE j.scope_id = s.id
                         AND j.status IN ('queued', 'running'))
              OR EXISTS (SELECT 1 FROM scopes child WHERE child.parent_id = s.id
                         AND child.status = 'open')
            THEN 1 ELSE 0 END AS busy
FROM scopes s WHERE s.id > :after ORDER BY s.id LIMIT :limit;

-- name: open_scopes
-- Open scopes that nothing can close any more.
SELECT s.id FROM scopes s
WHERE s.status = 'open'
  AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.scope_id = s.id
                  AND j.status IN ('queued', 'running'))
  AND NOT EXISTS (SELECT 1 FROM scopes child WHERE child.parent_id = s.id
                  AND child.status = 'open')
LIMIT :limit;

-- name: verify_webhook_deliveries
SELECT id, status, attempt_count, owner,
       EXISTS (SELECT 1 FROM webhook_configs w
               WHERE w.id = webhook_id AND w.removed_at IS NOT NULL) AS is_removed
FROM webhook_deliveries WHERE id > :after ORDER BY id LIMIT :limit;

-- name: verify_relay_deliveries
SELECT id, status, attempt_count, owner FROM relay_deliveries
WHERE id > :after ORDER BY id LIMIT :limit;

-- name: verify_states
SELECT plugin_name, state FROM plugin_state WHERE plugin_name > :after
ORDER BY plugin_name LIMIT :limit;

-- name: open_boots
SELECT id, pid FROM boots WHERE ended_at IS NULL ORDER BY started_at DESC LIMIT 1000;
