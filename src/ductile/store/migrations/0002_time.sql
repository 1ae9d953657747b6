-- Schedules, their slots, and the breaker.

ALTER TABLE job_queue ADD COLUMN schedule_id @key@;
ALTER TABLE job_queue ADD COLUMN slot @key@;
CREATE INDEX job_queue_scheduled ON job_queue (plugin, schedule_id, status)
  WHERE schedule_id IS NOT NULL AND status IN ('queued', 'running');

CREATE TABLE schedule_entries (
  plugin          @key@ NOT NULL,
  schedule_id     @key@ NOT NULL,
  rule            TEXT NOT NULL,
  first_seen      @key@ NOT NULL,
  last_fire       @key@,
  last_fired_at   @key@,
  last_passed     @key@,
  last_success_at @key@,
  paused          INTEGER NOT NULL DEFAULT 0,
  exhausted       INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (plugin, schedule_id)
);

-- One row a slot that was decided: fired (job_id) or not (reason). The key is what lets a
-- slot fire at most once, whatever crashes.
CREATE TABLE schedule_slots (
  plugin      @key@ NOT NULL,
  schedule_id @key@ NOT NULL,
  slot        @key@ NOT NULL,
  job_id      @key@,
  reason      @key@,
  created_at  @key@ NOT NULL,
  PRIMARY KEY (plugin, schedule_id, slot)
);
CREATE INDEX schedule_slots_created ON schedule_slots (created_at);

CREATE TABLE circuit_breakers (
  plugin          @key@ NOT NULL,
  command         @key@ NOT NULL,
  state           @key@ NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
  failure_count   INTEGER NOT NULL DEFAULT 0,
  opened_at       @key@,
  last_failure_at @key@,
  last_job_id     @key@,
  updated_at      @key@ NOT NULL,
  probe_job_id    @key@,
  PRIMARY KEY (plugin, command)
);

CREATE TABLE circuit_breaker_transitions (
  id            @key@ PRIMARY KEY,
  plugin        @key@ NOT NULL,
  command       @key@ NOT NULL,
  from_state    @key@,
  to_state      @key@ NOT NULL,
  failure_count INTEGER NOT NULL DEFAULT 0,
  reason        @key@ NOT NULL,
  job_id        @key@,
  created_at    @key@ NOT NULL
);
CREATE INDEX circuit_breaker_transitions_created ON circuit_breaker_transitions (created_at);
