-- The place of a job with a priority: it starts after the job with this `seq`, as if it had been
-- enqueued earlier. Such a job is parked from the beginning, because the index of the queue's
-- order has no place for it.
ALTER TABLE job_queue ADD COLUMN place @big@;
DROP INDEX job_queue_parked;
CREATE INDEX job_queue_parked ON job_queue (plugin, lane, (coalesce(place, seq)), seq)
  WHERE status = 'queued' AND next_retry_at IS NULL AND parked = 1;
