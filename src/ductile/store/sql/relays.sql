-- name: insert_relay
INSERT INTO relay_deliveries
  (id, instance, job_id, event_id, event_type, body, status, next_retry_at, created_at)
VALUES (:id, :instance, :job_id, :event_id, :event_type, :body, 'pending', :now, :now);

-- name: due_relays
-- The oldest first; what some boot sends now is not due.
SELECT id, event_type, body, attempt_count FROM relay_deliveries
WHERE instance = :instance AND status IN ('pending', 'failed') AND next_retry_at <= :now
  AND owner IS NULL
ORDER BY next_retry_at, id LIMIT :limit @skip_locked@;

-- name: relays_in_flight
SELECT count(*) FROM relay_deliveries WHERE owner IS NOT NULL AND instance = :instance;

-- name: next_relay
SELECT min(next_retry_at) FROM relay_deliveries
WHERE instance = :instance AND status IN ('pending', 'failed') AND owner IS NULL;

-- name: take_relay
UPDATE relay_deliveries SET owner = :owner, last_attempted_at = :now
WHERE id = :id AND owner IS NULL;

-- name: settle_relay
-- Only by the boot that sent it.
UPDATE relay_deliveries
SET status = :status, attempt_count = :attempt_count, next_retry_at = :next_retry_at,
    error_detail = :error, owner = NULL
WHERE id = :id AND owner = :owner;

-- name: relay_attempts
SELECT attempt_count, instance, event_type, event_id, job_id
FROM relay_deliveries WHERE id = :id AND owner = :owner;

-- name: relay_owners
SELECT DISTINCT owner FROM relay_deliveries WHERE owner IS NOT NULL;

-- name: release_relays
-- Whether it arrived is not known: it is due again, under the same event id.
UPDATE relay_deliveries SET owner = NULL WHERE owner = :owner;

-- name: relays
SELECT id, instance, job_id, event_id, event_type, status, attempt_count, last_attempted_at,
       next_retry_at, created_at, error_detail
FROM relay_deliveries
WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:instance AS TEXT) IS NULL OR instance = :instance)
ORDER BY id DESC LIMIT :limit;

-- name: retry_relay
UPDATE relay_deliveries SET status = 'pending', attempt_count = 0, next_retry_at = :now
WHERE id = :id AND status IN ('failed', 'dead');

-- name: dead_relays
SELECT id FROM relay_deliveries WHERE status = 'dead' ORDER BY id LIMIT :limit;

-- name: count_relays
SELECT instance, status, count(*) AS relays FROM relay_deliveries
WHERE status <> 'delivered' GROUP BY instance, status;

-- name: prune_relays
DELETE FROM relay_deliveries WHERE id IN (
  SELECT id FROM relay_deliveries WHERE status = 'delivered' AND created_at < :before
  ORDER BY id LIMIT :limit);

-- name: insert_relay_signature
-- No row means that these very bytes were let in before.
INSERT INTO relay_signatures (peer, signature, created_at) VALUES (:peer, :signature, :now)
ON CONFLICT DO NOTHING;

-- name: insert_relay_receipt
-- No row means that this event was taken in before.
INSERT INTO relay_receipts (peer, event_id, receiver_event_id, job_id, created_at)
VALUES (:peer, :event_id, :receiver_event_id, NULL, :now)
ON CONFLICT DO NOTHING;

-- name: relay_receipt
SELECT receiver_event_id, job_id FROM relay_receipts WHERE peer = :peer AND event_id = :event_id;

-- name: fill_relay_receipt
UPDATE relay_receipts SET job_id = :job_id WHERE peer = :peer AND event_id = :event_id;

-- name: prune_relay_receipts
DELETE FROM relay_receipts WHERE (peer, event_id) IN (
  SELECT peer, event_id FROM relay_receipts WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);

-- name: prune_relay_signatures
DELETE FROM relay_signatures WHERE (peer, signature) IN (
  SELECT peer, signature FROM relay_signatures WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);
