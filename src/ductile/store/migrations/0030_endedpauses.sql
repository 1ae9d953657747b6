-- When the last pause of a plugin, a pipeline, the gateway or a schedule entry (name: plugin/id) ended.
-- The silence and the age of jobs that it held count from then on.
CREATE TABLE ended_pauses (
  kind     @key@ NOT NULL CHECK (kind IN ('system', 'plugin', 'pipeline', 'schedule')),
  name     @key@ NOT NULL,
  ended_at @key@ NOT NULL,
  PRIMARY KEY (kind, name)
);
