-- Jobs, their history, plugin state and facts, and what recovery needs.
--
-- What every job writes has as few indexes as can be: rows of a log are in the order of
-- their sequence, and that is the order in which they are read and pruned.
--
-- Words between @ signs differ by engine: see store/migrate.py.
-- A column beyond those of the specification is nullable or has a default, so that a
-- script may insert a row with the specified columns alone.

CREATE TABLE job_queue (
  seq             @sequence@,
  id              @key@ NOT NULL UNIQUE,
  plugin          @key@ NOT NULL,
  command         @key@ NOT NULL,
  payload         TEXT,
  status          @key@ NOT NULL
                  CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'timed_out',
                                    'dead', 'skipped')),
  attempt         INTEGER NOT NULL DEFAULT 1,
  max_attempts    INTEGER NOT NULL DEFAULT 4,
  submitted_by    @key@ NOT NULL,
  dedupe_key      @key@,
  created_at      @key@ NOT NULL,
  started_at      @key@,
  completed_at    @key@,
  next_retry_at   @key@,
  last_error      TEXT,
  parent_job_id   @key@,
  source_event_id @key@,
  owner           @key@,
  dedupe_ttl      @real@,
  enqueued_snapshot_id @key@,
  started_snapshot_id  @key@
);

-- Ready is `queued` with no retry to wait for; a claim finds each plugin's first at once.
CREATE INDEX job_queue_ready ON job_queue (plugin, seq)
  WHERE status = 'queued' AND next_retry_at IS NULL;
CREATE INDEX job_queue_waiting ON job_queue (next_retry_at)
  WHERE status = 'queued' AND next_retry_at IS NOT NULL;
CREATE INDEX job_queue_running ON job_queue (plugin) WHERE status = 'running';
CREATE UNIQUE INDEX job_queue_running_dedupe ON job_queue (plugin, command, dedupe_key)
  WHERE status = 'running' AND dedupe_key IS NOT NULL;
CREATE INDEX job_queue_dedupe ON job_queue (dedupe_key, plugin, command, status)
  WHERE dedupe_key IS NOT NULL;
CREATE INDEX job_queue_ended ON job_queue (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX job_queue_parent ON job_queue (parent_job_id) WHERE parent_job_id IS NOT NULL;

CREATE TABLE job_log (
  seq             @sequence@,
  id              @key@ NOT NULL UNIQUE,
  plugin          @key@ NOT NULL,
  command         @key@ NOT NULL,
  status          @key@ NOT NULL,
  result          TEXT,
  attempt         INTEGER NOT NULL,
  submitted_by    @key@ NOT NULL,
  created_at      @key@ NOT NULL,
  completed_at    @key@ NOT NULL,
  last_error      TEXT,
  stderr          TEXT,
  parent_job_id   @key@,
  source_event_id @key@,
  job_id          @key@,
  started_at      @key@,
  duration_ms     @real@,
  stdout          TEXT,
  logs            TEXT
);
CREATE INDEX job_log_plugin ON job_log (plugin, seq);

CREATE TABLE job_transitions (
  id          @sequence@,
  job_id      @key@ NOT NULL,
  from_status @key@ NOT NULL,
  to_status   @key@ NOT NULL,
  attempt     INTEGER NOT NULL,
  reason      TEXT,
  created_at  @key@ NOT NULL
);
CREATE INDEX job_transitions_job ON job_transitions (job_id);

CREATE TABLE plugin_state (
  plugin_name @key@ PRIMARY KEY,
  state       TEXT NOT NULL DEFAULT '{}',
  updated_at  @key@
);

CREATE TABLE plugin_facts (
  id          @sequence@,
  seq         @big@ NOT NULL,
  plugin_name @key@ NOT NULL,
  fact_type   @key@ NOT NULL,
  job_id      @key@,
  command     @key@,
  fact_json   TEXT NOT NULL,
  created_at  @key@ NOT NULL,
  UNIQUE (plugin_name, seq)
);

-- The (version, config) pairs of a plugin whose `init` succeeded.
CREATE TABLE plugin_inits (
  plugin     @key@ NOT NULL,
  init_key   @key@ NOT NULL,
  job_id     @key@ NOT NULL,
  created_at @key@ NOT NULL,
  PRIMARY KEY (plugin, init_key)
);

-- One row a start of a gateway; running jobs name the boot that owns them.
CREATE TABLE boots (
  id         @key@ PRIMARY KEY,
  pid        INTEGER NOT NULL,
  version    TEXT NOT NULL,
  started_at @key@ NOT NULL,
  ended_at   @key@
);

CREATE TABLE config_snapshots (
  id                  @key@ PRIMARY KEY,
  config_hash         @key@ NOT NULL UNIQUE,
  config              TEXT NOT NULL,
  secret_fingerprints TEXT NOT NULL,
  created_at          @key@ NOT NULL,
  adopted_at          @key@ NOT NULL
);

CREATE TABLE notices (
  id         @sequence@,
  topic      @key@ NOT NULL,
  type       @key@ NOT NULL,
  job_id     @key@,
  plugin     @key@,
  payload    TEXT NOT NULL,
  created_at @key@ NOT NULL
);

CREATE TABLE dedupe_drops (
  id              @sequence@,
  dedupe_key      @key@ NOT NULL,
  plugin          @key@ NOT NULL,
  command         @key@ NOT NULL,
  submitted_by    @key@ NOT NULL,
  existing_job_id @key@ NOT NULL,
  created_at      @key@ NOT NULL
);
CREATE INDEX dedupe_drops_existing ON dedupe_drops (existing_job_id);
