-- name: insert_webhook_config
-- No row means that this source and event have one already.
INSERT INTO webhook_configs (source_identifier, event_type, agent_intent, target_session, secret,
                             target_url, plugin, pipeline, created_at)
VALUES (:source_identifier, :event_type, :agent_intent, :target_session, :secret, :target_url,
        :plugin, :pipeline, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: webhook_configs
-- Never with the secret.
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
-- Its deliveries still name it; what signed them is forgotten.
UPDATE webhook_configs SET removed_at = :now, secret = '' WHERE id = :id AND removed_at IS NULL;

-- name: insert_delivery
INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url, signature, status,
                                attempt_count, next_retry_at, created_at, message_id)
VALUES (:webhook_id, :session_id, :payload, :target_url, :signature, 'pending', 0,
        :next_retry_at, :now, :message_id)
RETURNING id;

-- name: next_delivery
-- The next one that is due, sought in the index's own order for each status. Of times that are
-- not in our form text order says nothing: they have to be mended first.
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
-- Outstanding ones whose time is missing, or that somebody else wrote in a form of his own.
SELECT id FROM webhook_deliveries
WHERE status IN ('pending', 'failed')
  AND (next_retry_at IS NULL OR next_retry_at @not_our_time@) LIMIT :limit;

-- name: delivery_due
SELECT next_retry_at FROM webhook_deliveries
WHERE id = :id AND status IN ('pending', 'failed') @skip_locked@;

-- name: set_delivery_due
UPDATE webhook_deliveries SET next_retry_at = :next_retry_at WHERE id = :id;

-- name: due_deliveries
-- The oldest due, as many as may be sent at once: the first few of each status, merged. Rows
-- are then found by id alone: a second word on their status would lead SQLite through all of it.
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
-- As many sends may start, whichever nodes start them. A slot that was taken in the future
-- was taken by a clock that has been set back since.
UPDATE delivery_slots SET taken_at = :now WHERE slot IN (
  SELECT slot FROM delivery_slots WHERE taken_at <= :before OR taken_at > :beyond
  ORDER BY slot LIMIT :limit @skip_locked@)
RETURNING slot;

-- name: first_slot
-- The one that has been taken for longest; empty where one is free because of its clock.
SELECT min(CASE WHEN taken_at > :beyond THEN '' ELSE taken_at END) FROM delivery_slots;

-- name: own_delivery
UPDATE webhook_deliveries SET owner = :owner, last_attempted_at = :now
WHERE id = :id AND owner IS NULL AND status = :status AND attempt_count = :attempt_count;

-- name: settle_delivery
-- Only by the boot that sent it, and only as it was when it was claimed.
UPDATE webhook_deliveries
SET status = :status, attempt_count = :attempt_count, next_retry_at = :next_retry_at,
    error_detail = :error_detail, owner = NULL
WHERE id = :id AND owner = :owner AND status = :was AND attempt_count = :attempts_before;

-- name: give_delivery_back
UPDATE webhook_deliveries SET owner = NULL, last_attempted_at = :last_attempted_at
WHERE id = :id AND owner = :owner;

-- name: deliveries_under_way
SELECT owner, id FROM webhook_deliveries WHERE owner IS NOT NULL ORDER BY owner, id;

-- name: release_deliveries
-- Whether they arrived is not known: they are due again, under the same message id.
UPDATE webhook_deliveries SET owner = NULL
WHERE owner = :owner AND (CAST(:id AS BIGINT) IS NULL OR id = :id);

-- name: deliveries
-- The newest first; each filter counts only where it is given. Since then means tried, or
-- made, since then.
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

-- name: deliveries_to_retry
SELECT id FROM webhook_deliveries
WHERE status = :status AND owner IS NULL
  AND (CAST(:since AS TEXT) IS NULL OR coalesce(last_attempted_at, created_at) >= :since)
ORDER BY id LIMIT :limit;

-- name: retry_delivery
-- With all its sends again; not while it is being sent.
UPDATE webhook_deliveries SET status = 'pending', attempt_count = 0, next_retry_at = :now
WHERE id = :id AND status = :was AND owner IS NULL;

-- name: count_deliveries
SELECT status, count(*) FROM webhook_deliveries GROUP BY status ORDER BY status;
