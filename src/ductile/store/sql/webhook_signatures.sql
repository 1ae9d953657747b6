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
-- The newest of each endpoint stays, as in prune_receipts.
WITH RECURSIVE endpoints(endpoint) AS (
  SELECT min(endpoint) FROM webhook_signatures
  UNION ALL
  SELECT (SELECT min(endpoint) FROM webhook_signatures WHERE endpoint > endpoints.endpoint)
  FROM endpoints WHERE endpoints.endpoint IS NOT NULL
)
DELETE FROM webhook_signatures WHERE (endpoint, signature) IN (
  SELECT w.endpoint, w.signature FROM endpoints JOIN webhook_signatures w
    ON w.endpoint = endpoints.endpoint AND w.created_at < :before
   AND w.created_at < (SELECT max(n.created_at) FROM webhook_signatures n
                       WHERE n.endpoint = endpoints.endpoint)
  LIMIT :limit);
