-- name: leave_series
-- The job that waits or is ready for this series; a newer one takes its place.
UPDATE job_queue SET debounce_series = NULL
WHERE debounce_series = :series AND status = 'queued'
RETURNING id, debounce_since;

-- name: enter_series
UPDATE job_queue SET debounce_series = :series, debounce_since = :since, next_retry_at = :due
WHERE id = :id;

-- name: debounced_jobs
SELECT id FROM job_queue
WHERE id @is_given@ AND status = 'queued' AND debounce_series IS NOT NULL;
