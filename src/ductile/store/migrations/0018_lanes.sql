-- Limits per key. A lane is the text of a job's keys, computed when it is enqueued. A ready job
-- whose lane is full is parked when a claim meets it: it leaves the index in queue order and is
-- found by its lane instead, so that no claim passes it again. Parking releases nothing and holds
-- nothing: every claim compares the first job of each parked lane with the running jobs.
ALTER TABLE job_queue ADD COLUMN lane @key@ NOT NULL DEFAULT '';
ALTER TABLE job_queue ADD COLUMN parked INTEGER NOT NULL DEFAULT 0;
DROP INDEX job_queue_ready;
CREATE INDEX job_queue_ready ON job_queue (plugin, seq)
  WHERE status = 'queued' AND next_retry_at IS NULL AND parked = 0;
CREATE INDEX job_queue_parked ON job_queue (plugin, lane, seq)
  WHERE status = 'queued' AND next_retry_at IS NULL AND parked = 1;
-- A covering index, so that counting the running jobs per lane reads no other row.
DROP INDEX job_queue_running;
CREATE INDEX job_queue_running ON job_queue (plugin, lane) WHERE status = 'running';

-- Rate limits: the theoretical arrival time of the generic cell rate algorithm, per plugin and
-- key. A time in the past is the same as no row.
CREATE TABLE rates (
  plugin     @key@ NOT NULL,
  rate_key   @key@ NOT NULL,
  used_until @key@ NOT NULL,
  PRIMARY KEY (plugin, rate_key)
);

-- Lanes that a plugin has closed by `retry_after`.
CREATE TABLE closed_lanes (
  plugin @key@ NOT NULL,
  lane   @key@ NOT NULL,
  until  @key@ NOT NULL,
  PRIMARY KEY (plugin, lane)
);
