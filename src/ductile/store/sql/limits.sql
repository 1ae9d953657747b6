-- name: set_lane
UPDATE job_queue SET lane = :lane WHERE id = :id;

-- name: set_place
-- Place a job before the first job that was enqueued since then; parked jobs are found by place.
UPDATE job_queue SET parked = 1, place = (
  SELECT first.seq - 1 FROM job_queue first WHERE first.created_at >= :since
  ORDER BY first.created_at, first.seq LIMIT 1)
WHERE id = :id;

-- name: lane_of
SELECT lane FROM job_queue WHERE id = :id;

-- name: running_of_lane
-- The running jobs of a plugin with their lanes, the oldest first.
SELECT lane, @job@ FROM job_queue
WHERE seq IN (SELECT r.seq FROM job_queue r WHERE r.status = 'running' AND r.plugin = :plugin)
ORDER BY started_at, seq;

-- name: queued_of_lane
-- The queued jobs of a lane that are older than the given one.
SELECT @job@ FROM job_queue
WHERE plugin = :plugin AND lane = :lane AND status = 'queued' AND next_retry_at IS NULL
  AND parked = 1 AND seq < :before
ORDER BY seq LIMIT :limit;

-- name: rates
SELECT rate_key, used_until FROM rates WHERE plugin = :plugin AND used_until > :now;

-- name: store_rate
INSERT INTO rates (plugin, rate_key, used_until) VALUES (:plugin, :rate_key, :used_until)
ON CONFLICT (plugin, rate_key) DO UPDATE SET used_until = excluded.used_until;

-- name: has_used_rates
SELECT 1 FROM rates WHERE used_until <= :now LIMIT 1;

-- name: delete_used_rates
DELETE FROM rates WHERE used_until <= :now;

-- name: closed_lanes
SELECT plugin, lane, until FROM closed_lanes WHERE until > :now;

-- name: close_lane
-- A later time wins.
INSERT INTO closed_lanes (plugin, lane, until) VALUES (:plugin, :lane, :until)
ON CONFLICT (plugin, lane) DO UPDATE SET until = excluded.until
WHERE closed_lanes.until < excluded.until;

-- name: delete_open_lanes
DELETE FROM closed_lanes WHERE until <= :now;

-- name: next_open_lane
SELECT min(until) FROM closed_lanes;
