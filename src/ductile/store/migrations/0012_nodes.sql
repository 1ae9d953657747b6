-- Nodes: the gateways that use this ledger, and which of them ran an attempt.

-- One row per node name. Times are by the database's clock, which all nodes share.
CREATE TABLE nodes (
  name        @key@ PRIMARY KEY,
  boot        @key@ NOT NULL,
  version     TEXT NOT NULL,
  config_hash @key@ NOT NULL,
  labels      TEXT NOT NULL,
  plugins     TEXT NOT NULL,
  pipelines   TEXT NOT NULL,
  workers     INTEGER NOT NULL,
  workspaces  @key@,
  started_at  @key@ NOT NULL,
  seen_at     @key@ NOT NULL,
  stopped_at  @key@,
  drained_at  @key@
);

ALTER TABLE boots ADD COLUMN node @key@;
ALTER TABLE job_log ADD COLUMN boot @key@;
