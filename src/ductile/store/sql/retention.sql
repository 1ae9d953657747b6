-- name: foreign_end_times
-- Among the oldest by text order: end times in another format; and, for jobs with a dedupe period
-- of their own, days that do not exist.
SELECT id, completed_at FROM (
  SELECT id, completed_at, dedupe_ttl FROM job_queue
  WHERE completed_at IS NOT NULL AND completed_at < :before
  ORDER BY completed_at LIMIT :window) AS oldest
WHERE completed_at @not_our_time@
   OR (dedupe_ttl IS NOT NULL AND @seconds_since_completed@ IS NULL);

-- name: set_end
UPDATE job_queue SET completed_at = :completed_at WHERE id = :id;

-- name: prune_jobs
-- Finished jobs past their retention, unless their dedupe key is still in force or their pipeline
-- instance is open, because its joins need them. A job with a dedupe period whose end is a day
-- that does not exist is skipped.
DELETE FROM job_queue WHERE id IN (
  SELECT id FROM job_queue j
  WHERE completed_at IS NOT NULL AND completed_at < :before
    AND status IN ('succeeded', 'failed', 'dead', 'skipped')
    AND (dedupe_key IS NULL OR completed_at < :dedupe_before)
    AND (dedupe_key IS NULL OR dedupe_ttl IS NULL
         OR @seconds_since_completed@ > dedupe_ttl)
    AND (scope_id IS NULL OR NOT EXISTS (@open_around_j@))
  ORDER BY completed_at LIMIT :limit);

-- name: prune_logs
-- Among the oldest by sequence, so that no index on the time is needed; rows from a clock that was
-- ahead, or of an open instance, do not block the others.
DELETE FROM job_log WHERE seq IN (
  SELECT seq FROM (SELECT seq, job_id, completed_at FROM job_log ORDER BY seq LIMIT :window) oldest
  WHERE completed_at < :before AND NOT EXISTS (
    SELECT 1 FROM job_queue j WHERE j.id = oldest.job_id AND j.scope_id IS NOT NULL
      AND EXISTS (@open_around_j@))
  LIMIT :limit);

-- name: prune_transitions
-- Among the oldest by sequence, so that no index on the time is needed; rows from a clock that was
-- ahead do not block the others.
DELETE FROM job_transitions WHERE id IN (
  SELECT id FROM (SELECT id, created_at FROM job_transitions ORDER BY id LIMIT :window) AS oldest
  WHERE created_at < :before LIMIT :limit);

-- name: prune_breaker_transitions
DELETE FROM circuit_breaker_transitions WHERE id IN (
  SELECT id FROM circuit_breaker_transitions WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);

-- name: prune_notices
-- Among the oldest by sequence, so that no index on the time is needed; rows from a clock that was
-- ahead do not block the others.
DELETE FROM notices WHERE id IN (
  SELECT id FROM (SELECT id, created_at FROM notices ORDER BY id LIMIT :window) AS oldest
  WHERE created_at < :before LIMIT :limit);

-- name: prune_slots
-- The next occurrence is computed from `schedule_entries`.
DELETE FROM schedule_slots WHERE (plugin, schedule_id, slot) IN (
  SELECT plugin, schedule_id, slot FROM schedule_slots WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);

-- name: prune_dedupe_drops
-- Among the oldest by sequence, so that no index on the time is needed; rows from a clock that was
-- ahead do not block the others.
DELETE FROM dedupe_drops WHERE id IN (
  SELECT id FROM (SELECT id, created_at FROM dedupe_drops ORDER BY id LIMIT :window) AS oldest
  WHERE created_at < :before LIMIT :limit);

-- name: prunable_facts
-- The newest fact of a type is always kept.
SELECT f.id FROM plugin_facts f
WHERE f.created_at < :before AND EXISTS (
  SELECT 1 FROM plugin_facts newer WHERE newer.plugin_name = f.plugin_name
    AND newer.fact_type = f.fact_type AND newer.seq > f.seq)
ORDER BY f.id LIMIT :limit;

-- name: allow_fact_pruning
-- Lets a trigger accept the following deletion.
INSERT INTO fact_pruning (older_than) VALUES (:before);

-- name: prune_facts
DELETE FROM plugin_facts WHERE id IN (@prunable_facts@);

-- name: end_fact_pruning
DELETE FROM fact_pruning;

-- name: prune_boots
-- A boot without an end may still run; after a crash its row is the only trace of it.
DELETE FROM boots WHERE id IN (
  SELECT b.id FROM boots b WHERE b.started_at < :before AND b.ended_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.status = 'running' AND j.owner = b.id)
  LIMIT :limit);

-- name: prune_snapshots
-- Only snapshots that no job refers to, and never the current one, which was adopted last.
DELETE FROM config_snapshots WHERE id IN (
  SELECT s.id FROM config_snapshots s
  WHERE s.created_at < :before
    AND s.adopted_at < (SELECT max(adopted_at) FROM config_snapshots)
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.enqueued_snapshot_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.started_snapshot_id = s.id)
  LIMIT :limit);

-- name: prune_scopes
DELETE FROM scopes WHERE id IN (
  SELECT s.id FROM scopes s
  WHERE s.ended_at IS NOT NULL AND s.ended_at < :before
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.scope_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM scopes child WHERE child.parent_id = s.id)
  ORDER BY s.ended_at LIMIT :limit);

-- name: prune_contexts
-- Contexts that no job and no scope refers to.
DELETE FROM event_context WHERE id IN (
  SELECT c.id FROM event_context c
  WHERE c.created_at < :before
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.id = c.id)
    AND NOT EXISTS (SELECT 1 FROM job_queue j WHERE j.entered_context_id = c.id)
    AND NOT EXISTS (SELECT 1 FROM scopes s WHERE s.context_id = c.id)
    AND NOT EXISTS (SELECT 1 FROM event_context child WHERE child.parent_id = c.id)
  ORDER BY c.created_at LIMIT :limit);

-- name: prune_receipts
-- The newest of each endpoint stays: its silence is counted from it.
WITH RECURSIVE endpoints(endpoint) AS (
  SELECT min(endpoint) FROM webhook_receipts
  UNION ALL
  SELECT (SELECT min(endpoint) FROM webhook_receipts WHERE endpoint > endpoints.endpoint)
  FROM endpoints WHERE endpoints.endpoint IS NOT NULL
)
DELETE FROM webhook_receipts WHERE (endpoint, delivery_id) IN (
  SELECT r.endpoint, r.delivery_id FROM endpoints JOIN webhook_receipts r
    ON r.endpoint = endpoints.endpoint AND r.created_at < :before
   AND r.created_at < (SELECT max(n.created_at) FROM webhook_receipts n
                       WHERE n.endpoint = endpoints.endpoint)
  LIMIT :limit);

-- name: prune_deliveries
-- Delivered ones only, among the oldest of them.
DELETE FROM webhook_deliveries WHERE id IN (
  SELECT id FROM (SELECT id, last_attempted_at, created_at FROM webhook_deliveries
                  WHERE status = 'delivered' AND next_retry_at IS NULL
                  ORDER BY id LIMIT :window) AS oldest
  WHERE coalesce(last_attempted_at, created_at) < :before LIMIT :limit);

-- name: prune_dead_deliveries
DELETE FROM webhook_deliveries WHERE id IN (
  SELECT id FROM (SELECT id, last_attempted_at, created_at FROM webhook_deliveries
                  WHERE status = 'dead' AND next_retry_at IS NULL AND owner IS NULL
                  ORDER BY id LIMIT :window) AS oldest
  WHERE coalesce(last_attempted_at, created_at) < :before LIMIT :limit);

-- name: prune_dead_relays
DELETE FROM relay_deliveries WHERE id IN (
  SELECT id FROM relay_deliveries
  WHERE status = 'dead' AND last_attempted_at < :before AND owner IS NULL
  ORDER BY last_attempted_at LIMIT :limit);

-- name: prune_relays
-- Delivered ones only, the oldest of them.
DELETE FROM relay_deliveries WHERE id IN (
  SELECT id FROM relay_deliveries WHERE status = 'delivered' AND last_attempted_at < :before
  ORDER BY last_attempted_at LIMIT :limit);

-- name: prune_relay_receipts
DELETE FROM relay_receipts WHERE (peer, event_id) IN (
  SELECT peer, event_id FROM relay_receipts WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);

-- name: prune_relay_signatures
DELETE FROM relay_signatures WHERE (peer, signature) IN (
  SELECT peer, signature FROM relay_signatures WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);

-- name: prune_tokens
-- Revoked or expired ones, past the retention of jobs.
DELETE FROM api_tokens WHERE id IN (
  SELECT id FROM api_tokens WHERE revoked_at < :before OR expires_at < :before
  ORDER BY id LIMIT :limit);

-- name: prune_idempotency_keys
DELETE FROM idempotency_keys WHERE (principal, method, path, idem_key) IN (
  SELECT principal, method, path, idem_key FROM idempotency_keys
  WHERE created_at < :before ORDER BY created_at LIMIT :limit);
