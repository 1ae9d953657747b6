-- The place of a job with a priority: it starts after the job with this `seq`, as if it had been
-- enqueued earlier. Such a job is set aside from the beginning, because the index of the queue's
-- order has no place for it.
ALTER TABLE job_queue ADD COLUMN place @big@;
-- By pipeline too, so that no claim passes the jobs of a paused one.
DROP INDEX job_queue_set_aside;
CREATE INDEX job_queue_set_aside
  ON job_queue (plugin, limit_key, pipeline, (coalesce(place, seq)), seq)
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 1;
