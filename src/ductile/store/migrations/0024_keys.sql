-- The limit keys and pipelines that have jobs set aside, in the order of their first jobs, so that
-- the cost of a claim does not grow with their number. A row decides nothing: it is a hint where to
-- look, and a claim compares it with the jobs. Only claims that hold the plugin's lock insert and
-- delete rows.
CREATE TABLE set_aside_keys (
  plugin     @key@ NOT NULL,
  limit_key  @key@ NOT NULL,
  pipeline   @key@ NOT NULL,
  -- The place of its first job set aside in the queue, or an earlier one.
  place      @big@ NOT NULL,
  -- When a rate, `retry_after` or a pause lets its jobs start; such a row is not in the order.
  held_until @key@,
  -- The limits under which that time was computed, as a hash: under others it is computed again.
  held_by    @key@,
  -- The concurrency key that was full when a claim met many rows of it; not in the order either.
  full_key   @key@,
  PRIMARY KEY (plugin, limit_key, pipeline)
);
CREATE INDEX set_aside_keys_order ON set_aside_keys (plugin, place)
  WHERE held_until IS NULL AND full_key IS NULL;
CREATE INDEX set_aside_keys_held ON set_aside_keys (plugin, held_until)
  WHERE held_until IS NOT NULL;
CREATE INDEX set_aside_keys_held_by ON set_aside_keys (plugin, held_by)
  WHERE held_until IS NOT NULL;
CREATE INDEX set_aside_keys_full ON set_aside_keys (plugin, full_key) WHERE full_key IS NOT NULL;

-- `set_aside` is 0 in the order of the queue, 1 once a claim has set the job aside, and 2 for a job
-- with a place of its own that no claim has set aside. The jobs set aside return to the order; the
-- next claims set them aside again where they are held.
UPDATE job_queue SET set_aside = CASE WHEN place IS NULL THEN 0 ELSE 2 END WHERE set_aside = 1;
DROP INDEX job_queue_set_aside;
CREATE INDEX job_queue_set_aside
  ON job_queue (plugin, limit_key, pipeline, (coalesce(place, seq)), seq)
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0;
CREATE INDEX job_queue_placed ON job_queue (plugin, place, seq)
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 2;

-- The attempt that a newer job of its key has asked to end (`on_full: cancel`).
ALTER TABLE job_queue ADD COLUMN displaced_attempt INTEGER;
