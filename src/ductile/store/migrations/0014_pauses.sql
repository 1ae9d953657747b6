-- Paused plugins, pipelines and the paused gateway (kind 'system', empty name): their jobs stay
-- queued. A pause ends at `until`, or when its row is deleted.
CREATE TABLE pauses (
  kind      @key@ NOT NULL CHECK (kind IN ('system', 'plugin', 'pipeline')),
  name      @key@ NOT NULL,
  paused_at @key@ NOT NULL,
  paused_by TEXT NOT NULL,
  reason    TEXT,
  until     @key@,
  PRIMARY KEY (kind, name)
);
