-- name: insert_webhook_config
-- No row means that this source and event already have a webhook.
INSERT INTO webhook_configs (source_identifier, event_type, agent_intent, target_session, secret,
                             target_url, plugin, pipeline, created_at)
VALUES (:source_identifier, :event_type, :agent_intent, :target_session, :secret, :target_url,
        :plugin, :pipeline, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: webhook_configs
-- Without the secret.
SELECT id, source_identifier, event_type, agent_intent, target_session, target_url, plugin,
       pipeline, created_at
FROM webhook_configs WHERE removed_at IS NULL ORDER BY id;

-- name: webhook_config
SELECT id, source_identifier, event_type, agent_intent, target_session, secret, target_url, plugin,
       pipeline, removed_at IS NOT NULL
FROM webhook_configs WHERE id = :id;

-- name: webhook_config_of
SELECT id FROM webhook_configs
WHERE source_identifier = :source_identifier AND event_type = :event_type AND removed_at IS NULL;

-- name: remove_webhook_config
-- Its deliveries still refer to it; the secret is deleted.
UPDATE webhook_configs SET removed_at = :now, secret = '' WHERE id = :id AND removed_at IS NULL;

-- name: insert_delivery
INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url, signature, status,
                                attempt_count, next_retry_at, created_at, message_id)
VALUES (:webhook_id, :session_id, :payload, :target_url, :signature, 'pending', 0,
        :next_retry_at, :now, :message_id)
RETURNING id;

-- name: next_delivery
-- The next due delivery, by the index, for each status. Times in other formats do not sort by
-- time, and have to be normalized first.
SELECT id, next_retry_at FROM (
  SELECT * FROM (SELECT id, next_retry_at FROM webhook_deliveries
                 WHERE status = 'pending' AND next_retry_at IS NOT NULL AND owner IS NULL
                   AND NOT (next_retry_at @not_our_time@)
                 ORDER BY next_retry_at LIMIT 1) AS pending
  UNION ALL
  SELECT * FROM (SELECT id, next_retry_at FROM webhook_deliveries
                 WHERE status = 'failed' AND next_retry_at IS NOT NULL AND owner IS NULL
                   AND NOT (next_retry_at @not_our_time@)
                 ORDER BY next_retry_at LIMIT 1) AS failed) AS first
ORDER BY next_retry_at LIMIT 1;

-- name: foreign_deliveries
-- Outstanding ones whose time is missing or not in our format.
SELECT id FROM webhook_deliveries
WHERE status IN ('pending', 'failed')
  AND (next_retry_at IS NULL OR next_retry_at @not_our_time@) LIMIT :limit;

-- name: delivery_due
SELECT next_retry_at FROM webhook_deliveries
WHERE id = :id AND status IN ('pending', 'failed') @skip_locked@;

-- name: set_delivery_due
UPDATE webhook_deliveries SET next_retry_at = :next_retry_at WHERE id = :id;

-- name: due_deliveries
-- The oldest due ones, as many as may be sent: the first few of each status, merged. The rows are
-- then found by id only: with a second condition on the status SQLite scans the whole index.
SELECT id, webhook_id, session_id, target_url, status, attempt_count, last_attempted_at,
       message_id
FROM webhook_deliveries
WHERE owner IS NULL AND id IN (
  SELECT id FROM (
    SELECT * FROM (SELECT id, next_retry_at FROM webhook_deliveries
                   WHERE status = 'pending' AND next_retry_at <= :now AND owner IS NULL
                     AND NOT (next_retry_at @not_our_time@)
                   ORDER BY next_retry_at, id LIMIT :limit) AS pending
    UNION ALL
    SELECT * FROM (SELECT id, next_retry_at FROM webhook_deliveries
                   WHERE status = 'failed' AND next_retry_at <= :now AND owner IS NULL
                     AND NOT (next_retry_at @not_our_time@)
                   ORDER BY next_retry_at, id LIMIT :limit) AS failed) AS due
  ORDER BY next_retry_at, id LIMIT :limit)
ORDER BY next_retry_at, id @skip_locked@;

-- name: delivery_payload
SELECT payload FROM webhook_deliveries WHERE id = :id;

-- name: take_slots
-- The slots limit how many sends may start, over all nodes. A slot that was taken in the future
-- comes from a clock that has been set back since.
UPDATE delivery_slots SET taken_at = :now WHERE slot IN (
  SELECT slot FROM delivery_slots WHERE taken_at <= :before OR taken_at > :beyond
  ORDER BY slot LIMIT :limit @skip_locked@)
RETURNING slot;

-- name: first_slot
-- The slot that was taken first; empty if one is free because of a clock that was set back.
SELECT min(CASE WHEN taken_at > :beyond THEN '' ELSE taken_at END) FROM delivery_slots;

-- name: claim_delivery
UPDATE webhook_deliveries SET owner = :owner, last_attempted_at = :now
WHERE id = :id AND owner IS NULL AND status = :status AND attempt_count = :attempt_count;

-- name: settle_delivery
-- Only by the boot that claimed it, and only if it is unchanged since.
UPDATE webhook_deliveries
SET status = :status, attempt_count = :attempt_count, next_retry_at = :next_retry_at,
    error_detail = :error_detail, owner = NULL
WHERE id = :id AND owner = :owner AND status = :was AND attempt_count = :attempts_before;

-- name: undo_delivery_claim
UPDATE webhook_deliveries SET owner = NULL, last_attempted_at = :last_attempted_at
WHERE id = :id AND owner = :owner;

-- name: claimed_deliveries
SELECT owner, id FROM webhook_deliveries WHERE owner IS NOT NULL ORDER BY owner, id;

-- name: release_deliveries
-- It is unknown whether they arrived: they are due again, with the same message id.
UPDATE webhook_deliveries SET owner = NULL
WHERE owner = :owner AND (CAST(:id AS BIGINT) IS NULL OR id = :id);

-- name: deliveries
-- The newest first; a filter that is NULL is not applied. `since` applies to the last attempt, or
-- to the creation if there was none.
SELECT id, webhook_id, session_id, target_url, status, attempt_count, last_attempted_at,
       next_retry_at, created_at, error_detail, message_id
FROM webhook_deliveries
WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:webhook_id AS BIGINT) IS NULL OR webhook_id = :webhook_id)
  AND (CAST(:since AS TEXT) IS NULL OR coalesce(last_attempted_at, created_at) >= :since)
  AND (CAST(:before AS BIGINT) IS NULL OR id < :before)
ORDER BY id DESC LIMIT :limit;

-- name: delivery
SELECT id, webhook_id, session_id, payload, target_url, signature, status, attempt_count,
       last_attempted_at, next_retry_at, created_at, error_detail, message_id, owner
FROM webhook_deliveries WHERE id = :id;

-- name: delivery_ids
-- Those that can be retried: the webhook is not removed.
SELECT id FROM webhook_deliveries d
WHERE status = :status AND owner IS NULL
  AND EXISTS (SELECT 1 FROM webhook_configs w WHERE w.id = d.webhook_id AND w.removed_at IS NULL)
  AND (CAST(:webhook AS BIGINT) IS NULL OR webhook_id = :webhook)
  AND (CAST(:since AS TEXT) IS NULL OR coalesce(last_attempted_at, created_at) >= :since)
ORDER BY id LIMIT :limit;

-- name: retry_delivery
-- With all its attempts; not while it is being sent.
UPDATE webhook_deliveries SET status = 'pending', attempt_count = 0, next_retry_at = :now
WHERE id = :id AND status = :was AND owner IS NULL;

-- name: dead_delivery_ids
SELECT id FROM webhook_deliveries
WHERE status = 'dead' AND owner IS NULL
  AND (CAST(:until AS TEXT) IS NULL OR coalesce(last_attempted_at, created_at) < :until)
ORDER BY id LIMIT :limit;

-- name: delete_dead_delivery
DELETE FROM webhook_deliveries WHERE id = :id AND status = 'dead' AND owner IS NULL;

-- name: count_deliveries
SELECT status, count(*) FROM webhook_deliveries GROUP BY status ORDER BY status;
