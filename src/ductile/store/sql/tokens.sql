-- name: insert_token
INSERT INTO api_tokens (id, name, hash, scopes, created_at, expires_at, lease,
                        runs_budget, runs_left, retries_budget, retries_left)
VALUES (:id, :name, :hash, :scopes, :now, :expires_at, :lease, :runs, :runs, :retries, :retries)
ON CONFLICT DO NOTHING;

-- name: tokens
SELECT id, name, scopes, created_at, expires_at, revoked_at, rotated_at, lease,
       runs_budget, runs_left, retries_budget, retries_left, previous_until
FROM api_tokens ORDER BY created_at, id;

-- name: valid_tokens
-- The valid tokens, with their hashes; of a rotated one also the previous hash while it is valid.
SELECT id, name, hash, scopes, expires_at, lease,
       CASE WHEN previous_until > :now THEN previous_hash END, previous_until
FROM api_tokens
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id;

-- name: find_token
-- By id, or by name: the token that is not revoked, else the one that was revoked last.
SELECT id, name, scopes, created_at, expires_at, revoked_at, rotated_at, lease,
       runs_budget, runs_left, retries_budget, retries_left, previous_until
FROM api_tokens
WHERE id = :which OR name = :which
ORDER BY CASE WHEN id = :which THEN 0 WHEN revoked_at IS NULL THEN 1 ELSE 2 END, revoked_at DESC
LIMIT 1;

-- name: revoke_token
UPDATE api_tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL;

-- name: rotate_token
-- The old secret stays valid until `previous_until`; NULL makes it void at once. Changes no row if
-- that would end an earlier overlap.
UPDATE api_tokens
SET previous_hash = CASE WHEN CAST(:previous_until AS TEXT) IS NULL THEN NULL ELSE hash END,
    previous_until = :previous_until, hash = :hash, rotated_at = :now, expires_at = :expires_at
WHERE id = :id AND revoked_at IS NULL
  AND (CAST(:previous_until AS TEXT) IS NULL OR previous_until IS NULL OR previous_until <= :now);

-- name: spend_runs
-- Changes no row if the token is not valid any more, or has less than that left.
UPDATE api_tokens SET runs_left = runs_left - :count
WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
  AND (runs_left IS NULL OR runs_left >= :count);

-- name: spend_retries
UPDATE api_tokens SET retries_left = retries_left - :count
WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
  AND (retries_left IS NULL OR retries_left >= :count);
