-- name: insert_webhook_signature
-- No row means that this signature was accepted after `before`.
INSERT INTO webhook_signatures (endpoint, signature, accepted_as, created_at)
VALUES (:endpoint, :signature, NULL, :now)
ON CONFLICT (endpoint, signature) DO UPDATE SET accepted_as = NULL, created_at = excluded.created_at
WHERE webhook_signatures.created_at < :before;

-- name: webhook_signature
SELECT accepted_as FROM webhook_signatures WHERE endpoint = :endpoint AND signature = :signature;

-- name: fill_webhook_signature
UPDATE webhook_signatures SET accepted_as = :accepted_as
WHERE endpoint = :endpoint AND signature = :signature;

-- name: prune_webhook_signatures
DELETE FROM webhook_signatures WHERE (endpoint, signature) IN (
  SELECT endpoint, signature FROM webhook_signatures WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);
