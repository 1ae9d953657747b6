-- name: insert_token
INSERT INTO api_tokens (id, name, hash, scopes, created_at, expires_at)
VALUES (:id, :name, :hash, :scopes, :now, :expires_at)
ON CONFLICT DO NOTHING;

-- name: tokens
SELECT id, name, scopes, created_at, expires_at, revoked_at, rotated_at
FROM api_tokens ORDER BY created_at, id;

-- name: valid_tokens
-- The valid tokens, with their hashes.
SELECT id, name, hash, scopes, expires_at FROM api_tokens
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id;

-- name: find_token
-- By id or, among tokens that are not revoked, by name.
SELECT id, name, scopes, created_at, expires_at, revoked_at, rotated_at FROM api_tokens
WHERE id = :which OR (name = :which AND revoked_at IS NULL)
ORDER BY CASE WHEN id = :which THEN 0 ELSE 1 END LIMIT 1;

-- name: revoke_token
UPDATE api_tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL;

-- name: rotate_token
UPDATE api_tokens SET hash = :hash, rotated_at = :now, expires_at = :expires_at
WHERE id = :id AND revoked_at IS NULL;
