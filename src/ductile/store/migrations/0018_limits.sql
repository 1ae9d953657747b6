-- Limits per key. A limit key is the text of a job's keys, computed when it is enqueued. A ready
-- job whose limit key is full is set aside when a claim meets it: it leaves the index in queue
-- order and is found by its limit key instead, so that no claim passes it again. The column decides
-- nothing: every claim compares the first job set aside of each limit key with the running jobs.
ALTER TABLE job_queue ADD COLUMN limit_key @key@ NOT NULL DEFAULT '';
ALTER TABLE job_queue ADD COLUMN set_aside INTEGER NOT NULL DEFAULT 0;
DROP INDEX job_queue_ready;
CREATE INDEX job_queue_ready ON job_queue (plugin, seq)
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0;
CREATE INDEX job_queue_set_aside ON job_queue (plugin, limit_key, seq)
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 1;
-- A covering index, so that counting the running jobs per limit key reads no other row.
DROP INDEX job_queue_running;
CREATE INDEX job_queue_running ON job_queue (plugin, limit_key) WHERE status = 'running';

-- Rate limits: the theoretical arrival time of the generic cell rate algorithm, per plugin and
-- key. A time in the past is the same as no row.
CREATE TABLE rates (
  plugin     @key@ NOT NULL,
  rate_key   @key@ NOT NULL,
  used_until @key@ NOT NULL,
  PRIMARY KEY (plugin, rate_key)
);

-- Limit keys that a plugin has closed by `retry_after`.
CREATE TABLE closed_keys (
  plugin    @key@ NOT NULL,
  limit_key @key@ NOT NULL,
  until     @key@ NOT NULL,
  PRIMARY KEY (plugin, limit_key)
);
