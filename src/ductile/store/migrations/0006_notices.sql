-- The order of notices, also where several nodes write at once and ids tell none.

-- engine: sqlite
ALTER TABLE notices ADD COLUMN xact INTEGER NOT NULL DEFAULT 0;
-- engine: all
-- engine: postgres
ALTER TABLE notices ADD COLUMN xact BIGINT NOT NULL
  DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint);
CREATE INDEX notices_order ON notices (xact, id);
-- engine: all
