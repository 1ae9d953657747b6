-- Who may enter, and what has entered once already.

-- Tokens made by `token create`; only the hash of the secret is known.
CREATE TABLE api_tokens (
  id         @key@ PRIMARY KEY,
  name       @key@ NOT NULL,
  hash       @key@ NOT NULL UNIQUE,
  scopes     TEXT NOT NULL,
  created_at @key@ NOT NULL,
  expires_at @key@,
  revoked_at @key@,
  rotated_at @key@
);
CREATE UNIQUE INDEX api_tokens_name ON api_tokens (name) WHERE revoked_at IS NULL;

-- A key, what it was sent with, and what was answered.
CREATE TABLE idempotency_keys (
  principal  @key@ NOT NULL,
  method     @key@ NOT NULL,
  path       @key@ NOT NULL,
  idem_key   @key@ NOT NULL,
  body_hash  @key@ NOT NULL,
  answer     TEXT NOT NULL,
  created_at @key@ NOT NULL,
  PRIMARY KEY (principal, method, path, idem_key)
);
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);

-- Deliveries of webhooks that were taken in, by the sender's own id.
CREATE TABLE webhook_receipts (
  endpoint    @key@ NOT NULL,
  delivery_id @key@ NOT NULL,
  job_id      @key@,
  created_at  @key@ NOT NULL,
  PRIMARY KEY (endpoint, delivery_id)
);
CREATE INDEX webhook_receipts_created ON webhook_receipts (created_at);
