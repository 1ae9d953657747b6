-- name: insert_relay
INSERT INTO relay_deliveries
  (id, instance, job_id, event_id, event_type, body, status, next_retry_at, created_at)
VALUES (:id, :instance, :job_id, :event_id, :event_type, :body, 'pending', :now, :now);

-- name: due_relays
-- The oldest due ones, as many as may be sent: the first few of each status, merged. A claimed
-- relay is not due.
SELECT id, job_id, event_id, event_type, body, attempt_count, last_attempted_at
FROM relay_deliveries
WHERE id IN (
  SELECT id FROM (
    SELECT * FROM (SELECT id, next_retry_at FROM relay_deliveries
                   WHERE instance = :instance AND status = 'pending' AND next_retry_at <= :now
                     AND owner IS NULL AND NOT (next_retry_at @not_our_time@)
                   ORDER BY next_retry_at, id LIMIT :limit) AS pending
    UNION ALL
    SELECT * FROM (SELECT id, next_retry_at FROM relay_deliveries
                   WHERE instance = :instance AND status = 'failed' AND next_retry_at <= :now
                     AND owner IS NULL AND NOT (next_retry_at @not_our_time@)
                   ORDER BY next_retry_at, id LIMIT :limit) AS failed) AS due
  ORDER BY next_retry_at, id LIMIT :limit)
ORDER BY next_retry_at, id;

-- name: next_relay
-- The next due relay, by the index, for each status. Times in other formats do not sort by time,
-- and have to be normalized first.
SELECT id, next_retry_at FROM (
  SELECT * FROM (SELECT id, next_retry_at FROM relay_deliveries
                 WHERE instance = :instance AND status = 'pending' AND next_retry_at IS NOT NULL
                   AND owner IS NULL AND NOT (next_retry_at @not_our_time@)
                 ORDER BY next_retry_at LIMIT 1) AS pending
  UNION ALL
  SELECT * FROM (SELECT id, next_retry_at FROM relay_deliveries
                 WHERE instance = :instance AND status = 'failed' AND next_retry_at IS NOT NULL
                   AND owner IS NULL AND NOT (next_retry_at @not_our_time@)
                 ORDER BY next_retry_at LIMIT 1) AS failed) AS first
ORDER BY next_retry_at LIMIT 1;

-- name: foreign_relays
-- Outstanding ones whose time is missing or not in our format.
SELECT id FROM relay_deliveries
WHERE instance = :instance AND status IN ('pending', 'failed')
  AND (next_retry_at IS NULL OR next_retry_at @not_our_time@) LIMIT :limit;

-- name: relay_due
SELECT next_retry_at FROM relay_deliveries
WHERE id = :id AND status IN ('pending', 'failed') @skip_locked@;

-- name: set_relay_due
UPDATE relay_deliveries SET next_retry_at = :next_retry_at WHERE id = :id;

-- name: claim_relay
UPDATE relay_deliveries SET owner = :owner, last_attempted_at = :now
WHERE id = :id AND owner IS NULL AND status IN ('pending', 'failed');

-- name: settle_relay
-- Only by the boot that claimed it, and only for the same claim.
UPDATE relay_deliveries
SET status = :status, attempt_count = :attempt_count, next_retry_at = :next_retry_at,
    error_detail = :error, owner = NULL
WHERE id = :id AND owner = :owner AND last_attempted_at = :claimed_at;

-- name: undo_relay_claim
UPDATE relay_deliveries SET owner = NULL, last_attempted_at = :tried_at
WHERE id = :id AND owner = :owner AND last_attempted_at = :claimed_at;

-- name: claimed_relays
-- In the order of the partial index of claimed rows, so that no other index is used.
SELECT owner, id, instance FROM relay_deliveries WHERE owner IS NOT NULL ORDER BY owner;

-- name: release_relays
-- It is unknown whether it arrived: it is due again, with the same event id.
UPDATE relay_deliveries SET owner = NULL
WHERE owner = :owner AND (CAST(:id AS TEXT) IS NULL OR id = :id);

-- name: relays
SELECT id, instance, job_id, event_id, event_type, status, attempt_count, last_attempted_at,
       next_retry_at, created_at, error_detail
FROM relay_deliveries
WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:instance AS TEXT) IS NULL OR instance = :instance)
ORDER BY id DESC LIMIT :limit;

-- name: relay
SELECT id, instance, job_id, event_id, event_type, status, owner
FROM relay_deliveries WHERE id = :id;

-- name: dead_relays
SELECT id, instance, job_id, event_id, event_type FROM relay_deliveries
WHERE status = 'dead' ORDER BY last_attempted_at, id LIMIT :limit;

-- name: retry_relay
-- With all its attempts; not while it is being sent.
UPDATE relay_deliveries SET status = 'pending', attempt_count = 0, next_retry_at = :now
WHERE id = :id AND status IN ('failed', 'dead') AND owner IS NULL;

-- name: dead_relay_ids
SELECT id FROM relay_deliveries
WHERE status = 'dead' AND owner IS NULL
  AND (CAST(:until AS TEXT) IS NULL OR coalesce(last_attempted_at, created_at) < :until)
ORDER BY last_attempted_at, id LIMIT :limit;

-- name: delete_dead_relay
DELETE FROM relay_deliveries WHERE id = :id AND status = 'dead' AND owner IS NULL;

-- name: count_relays
-- Outstanding and dead relays, and since when; delivered ones are not counted.
SELECT instance, status, count(*) AS relays, min(created_at) AS since FROM relay_deliveries
WHERE status IN ('pending', 'failed', 'dead') GROUP BY instance, status;

-- name: insert_relay_signature
-- No row means that exactly these bytes were accepted before.
INSERT INTO relay_signatures (peer, signature, created_at) VALUES (:peer, :signature, :now)
ON CONFLICT DO NOTHING;

-- name: insert_relay_receipt
-- No row means that this event was received before.
INSERT INTO relay_receipts (peer, event_id, receiver_event_id, job_id, created_at)
VALUES (:peer, :event_id, :receiver_event_id, NULL, :now)
ON CONFLICT DO NOTHING;

-- name: relay_receipt
SELECT receiver_event_id, job_id FROM relay_receipts WHERE peer = :peer AND event_id = :event_id;

-- name: fill_relay_receipt
UPDATE relay_receipts SET job_id = :job_id WHERE peer = :peer AND event_id = :event_id;
