-- name: insert_token
INSERT INTO api_tokens (id, name, hash, scopes, created_at, expires_at)
VALUES (:id, :name, :hash, :scopes, :now, :expires_at)
ON CONFLICT DO NOTHING;

-- name: tokens
SELECT id, name, scopes, created_at, expires_at, revoked_at, rotated_at
FROM api_tokens ORDER BY created_at, id;

-- name: good_tokens
-- Those that open a door now, with the hashes to compare by.
SELECT id, name, hash, scopes, expires_at FROM api_tokens
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id;

-- name: find_token
-- By id or, among those not revoked, by name.
SELECT id, name, scopes, created_at, expires_at, revoked_at, rotated_at FROM api_tokens
WHERE id = :which OR (name = :which AND revoked_at IS NULL)
ORDER BY CASE WHEN id = :which THEN 0 ELSE 1 END LIMIT 1;

-- name: revoke_token
UPDATE api_tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL;

-- name: rotate_token
UPDATE api_tokens SET hash = :hash, rotated_at = :now, expires_at = :expires_at
WHERE id = :id AND revoked_at IS NULL;

-- name: prune_tokens
-- Revoked or expired, and past the time that an operator may want to see them.
DELETE FROM api_tokens WHERE id IN (
  SELECT id FROM api_tokens WHERE revoked_at < :before OR expires_at < :before
  ORDER BY id LIMIT :limit);

-- name: idempotent_answer
SELECT body_hash, answer FROM idempotency_keys
WHERE principal = :principal AND method = :method AND path = :path AND idem_key = :idem_key
  AND created_at > :since;

-- name: keep_idempotent_answer
-- A key whose day is over may be used again, whether or not it was pruned.
INSERT INTO idempotency_keys (principal, method, path, idem_key, body_hash, answer, created_at)
VALUES (:principal, :method, :path, :idem_key, :body_hash, :answer, :now)
ON CONFLICT (principal, method, path, idem_key)
DO UPDATE SET body_hash = excluded.body_hash, answer = excluded.answer,
              created_at = excluded.created_at;

-- name: prune_idempotency_keys
DELETE FROM idempotency_keys WHERE (principal, method, path, idem_key) IN (
  SELECT principal, method, path, idem_key FROM idempotency_keys
  WHERE created_at < :before ORDER BY created_at LIMIT :limit);

-- name: insert_receipt
-- No row means that this delivery was taken in before.
INSERT INTO webhook_receipts (endpoint, delivery_id, job_id, created_at)
VALUES (:endpoint, :delivery_id, NULL, :now)
ON CONFLICT DO NOTHING;

-- name: receipt
SELECT job_id FROM webhook_receipts WHERE endpoint = :endpoint AND delivery_id = :delivery_id;

-- name: fill_receipt
UPDATE webhook_receipts SET job_id = :job_id
WHERE endpoint = :endpoint AND delivery_id = :delivery_id;

-- name: prune_receipts
DELETE FROM webhook_receipts WHERE (endpoint, delivery_id) IN (
  SELECT endpoint, delivery_id FROM webhook_receipts
  WHERE created_at < :before ORDER BY created_at LIMIT :limit);

-- name: queue_by_plugin
-- What waits and runs, and since when the first of it waits.
SELECT plugin, status, count(*) AS jobs, min(created_at) AS oldest FROM job_queue
WHERE status IN ('queued', 'running') GROUP BY plugin, status ORDER BY plugin, status;

-- name: ends_by_plugin
-- Attempts that ended since, with their run times.
SELECT plugin, status, count(*) AS attempts, avg(duration_ms) AS mean_ms, max(duration_ms) AS max_ms
FROM job_log WHERE completed_at >= :since GROUP BY plugin, status ORDER BY plugin, status;

-- name: all_breakers
SELECT plugin, command, state FROM circuit_breakers ORDER BY plugin, command LIMIT :limit;

-- name: jobs_to_act_on
-- The oldest first; each filter counts only where it is given.
SELECT id FROM job_queue
WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:plugin AS TEXT) IS NULL OR plugin = :plugin)
  AND (CAST(:command AS TEXT) IS NULL OR command = :command)
  AND (CAST(:submitted_by AS TEXT) IS NULL OR submitted_by = :submitted_by)
  AND (CAST(:before AS TEXT) IS NULL OR created_at < :before)
  AND status IN ('queued', 'running', 'failed', 'dead')
  AND (CASE WHEN status IN ('queued', 'running') THEN 'cancel' ELSE 'retry' END) = :action
ORDER BY seq LIMIT :limit;
