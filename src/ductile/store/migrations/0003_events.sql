-- Pipelines: contexts, scopes, and where a job stands in them.

ALTER TABLE job_queue ADD COLUMN event_context_id @key@;
ALTER TABLE job_queue ADD COLUMN entered_context_id @key@;
ALTER TABLE job_queue ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_queue ADD COLUMN pipeline @key@ NOT NULL DEFAULT '';
ALTER TABLE job_queue ADD COLUMN step_path @key@ NOT NULL DEFAULT '';
ALTER TABLE job_queue ADD COLUMN branch @key@ NOT NULL DEFAULT '';
ALTER TABLE job_queue ADD COLUMN scope_id @key@;
ALTER TABLE job_queue ADD COLUMN join_of @key@;
ALTER TABLE job_queue ADD COLUMN replay_of @key@;

-- Redelivery of one event to one target is one job.
CREATE UNIQUE INDEX job_queue_identity ON job_queue
  ((coalesce(parent_job_id, '')), source_event_id, pipeline, step_path, plugin, command)
  WHERE source_event_id IS NOT NULL;
CREATE INDEX job_queue_scope ON job_queue (scope_id, status) WHERE scope_id IS NOT NULL;
CREATE INDEX job_queue_entered ON job_queue (entered_context_id)
  WHERE entered_context_id IS NOT NULL;
CREATE INDEX job_queue_join ON job_queue (join_of) WHERE join_of IS NOT NULL;
CREATE INDEX notices_job ON notices (job_id) WHERE job_id IS NOT NULL AND topic = 'events';

CREATE TABLE event_context (
  id               @key@ PRIMARY KEY,
  parent_id        @key@,
  pipeline_name    @key@,
  step_id          @key@,
  accumulated_json TEXT NOT NULL,
  created_at       @key@ NOT NULL
);
CREATE INDEX event_context_created ON event_context (created_at);
CREATE INDEX event_context_parent ON event_context (parent_id) WHERE parent_id IS NOT NULL;

-- An instance of a pipeline, or (with a split) one passing of a split inside it.
CREATE TABLE scopes (
  id            @key@ PRIMARY KEY,
  parent_id     @key@,
  pipeline      @key@ NOT NULL,
  split         @key@ NOT NULL DEFAULT '',
  branch        @key@ NOT NULL DEFAULT '',
  parent_job_id @key@,
  hops          INTEGER NOT NULL DEFAULT 0,
  join_always   INTEGER NOT NULL DEFAULT 0,
  context_id    @key@,
  join_of       @key@,
  status        @key@ NOT NULL DEFAULT 'open'
                CHECK (status IN ('open', 'failed', 'ended', 'skipped')),
  reason        TEXT,
  created_at    @key@ NOT NULL,
  ended_at      @key@
);
CREATE INDEX scopes_parent ON scopes (parent_id, status) WHERE parent_id IS NOT NULL;
CREATE INDEX scopes_context ON scopes (context_id) WHERE context_id IS NOT NULL;
CREATE INDEX scopes_join ON scopes (join_of) WHERE join_of IS NOT NULL;
CREATE INDEX scopes_ended ON scopes (ended_at) WHERE ended_at IS NOT NULL;

-- engine: sqlite
CREATE TRIGGER event_context_is_final BEFORE UPDATE ON event_context BEGIN SELECT RAISE(ABORT, 'event_context rows cannot be changed'); END;
-- engine: all
-- engine: postgres
CREATE FUNCTION event_context_is_final() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'event_context rows cannot be changed'; END $$;
CREATE TRIGGER event_context_is_final BEFORE UPDATE ON event_context FOR EACH ROW EXECUTE FUNCTION event_context_is_final();
-- engine: all
