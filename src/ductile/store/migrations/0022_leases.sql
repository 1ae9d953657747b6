-- A lease: a token whose runs are recorded in the audit log, and which may start and retry only so
-- many jobs. NULL is no limit.
ALTER TABLE api_tokens ADD COLUMN lease INTEGER NOT NULL DEFAULT 0;
ALTER TABLE api_tokens ADD COLUMN runs_budget INTEGER;
ALTER TABLE api_tokens ADD COLUMN runs_left INTEGER CHECK (runs_left >= 0);
ALTER TABLE api_tokens ADD COLUMN retries_budget INTEGER;
ALTER TABLE api_tokens ADD COLUMN retries_left INTEGER CHECK (retries_left >= 0);
-- The secret before the last rotation, valid until its end.
ALTER TABLE api_tokens ADD COLUMN previous_hash @key@;
ALTER TABLE api_tokens ADD COLUMN previous_until @key@;
