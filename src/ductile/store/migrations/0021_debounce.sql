-- The series of a debounced job that has not started, and the time of the first event of it. A
-- series has at most one queued job. The start of a job ends its series, so that its retries do not
-- conflict with the job of a newer event.
ALTER TABLE job_queue ADD COLUMN debounce_series @key@;
ALTER TABLE job_queue ADD COLUMN debounce_since @key@;
CREATE UNIQUE INDEX job_queue_debounce ON job_queue (debounce_series)
  WHERE status = 'queued' AND debounce_series IS NOT NULL;
