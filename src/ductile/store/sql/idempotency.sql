-- name: idempotent_answer
SELECT body_hash, answer FROM idempotency_keys
WHERE principal = :principal AND method = :method AND path = :path AND idem_key = :idem_key
  AND created_at > :since;

-- name: store_idempotent_answer
-- A key that is older than a day may be used again, even if it is not pruned yet.
INSERT INTO idempotency_keys (principal, method, path, idem_key, body_hash, answer, created_at)
VALUES (:principal, :method, :path, :idem_key, :body_hash, :answer, :now)
ON CONFLICT (principal, method, path, idem_key)
DO UPDATE SET body_hash = excluded.body_hash, answer = excluded.answer,
              created_at = excluded.created_at;

-- name: insert_receipt
INSERT INTO webhook_receipts (endpoint, delivery_id, job_id, created_at)
VALUES (:endpoint, :delivery_id, :job_id, :now);

-- name: receipts
-- Those of deliveries that were received before.
SELECT delivery_id, job_id FROM webhook_receipts
WHERE endpoint = :endpoint AND delivery_id IN (SELECT given.id FROM @given@);
