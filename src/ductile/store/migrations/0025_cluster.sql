-- Requests to one node, which it finds by its boot, whatever the order of the notices: to end a job,
-- to reload its configuration, to look at its waits.
CREATE TABLE node_requests (
  id          @key@ PRIMARY KEY,
  boot        @key@ NOT NULL,
  kind        @key@ NOT NULL CHECK (kind IN ('cancel', 'reload', 'waits')),
  job_id      @key@,
  reason      TEXT,
  created_at  @key@ NOT NULL,
  answered_at @key@,
  answer      TEXT
);
CREATE INDEX node_requests_open ON node_requests (boot) WHERE answered_at IS NULL;

-- The newest migration that a node knows; null for a version that does not register it.
ALTER TABLE nodes ADD COLUMN schema_version INTEGER;

-- How a wait ends that was decided on a node that does not know its pipeline, as JSON.
ALTER TABLE waits ADD COLUMN decided TEXT;
