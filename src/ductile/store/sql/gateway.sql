-- name: insert_boot
INSERT INTO boots (id, pid, version, started_at) VALUES (:id, :pid, :version, :now);

-- name: resume_boot
UPDATE boots SET ended_at = NULL WHERE id = :id;

-- name: end_boot
UPDATE boots SET ended_at = :now WHERE id = :id AND ended_at IS NULL;

-- name: notice
SELECT 1 FROM notices WHERE id = :id;

-- name: boot_under_way
SELECT 1 FROM boots WHERE id = :id AND ended_at IS NULL;

-- name: other_boots
-- Those whose end nobody has recorded.
SELECT id FROM boots WHERE ended_at IS NULL AND id <> :id;

-- name: running_owners
SELECT DISTINCT owner FROM job_queue WHERE status = 'running';

-- name: orphans
-- Running jobs of a boot that is no more, the oldest first.
SELECT @job@ FROM job_queue
WHERE status = 'running' AND (owner = :owner OR (owner IS NULL AND CAST(:owner AS TEXT) IS NULL))
ORDER BY seq LIMIT :limit;

-- name: running_of_owner
SELECT id, attempt FROM job_queue WHERE status = 'running' AND owner = :owner;

-- name: unstart_job
-- A claim that was never started goes back as it was: its attempt does not count.
UPDATE job_queue SET status = 'queued', owner = NULL, started_at = NULL
WHERE id = :id AND status = 'running' AND attempt = :attempt;

-- name: was_given_back
SELECT 1 FROM job_transitions
WHERE job_id = :id AND attempt = :attempt AND to_status = 'queued' AND reason = :reason
LIMIT 1;

-- name: end_queued_job
-- A job that ends without having run.
UPDATE job_queue SET status = :status, completed_at = :now, next_retry_at = NULL,
                     last_error = :error
WHERE id = :id AND status = 'queued' AND attempt = :attempt;

-- name: queued_plugins
SELECT DISTINCT plugin FROM job_queue WHERE status = 'queued';

-- name: queued_of_plugin
SELECT @job@ FROM job_queue WHERE status = 'queued' AND plugin = :plugin AND created_at <= :until
ORDER BY seq LIMIT :limit;

-- name: requeue_job
-- An operator's retry: the same job, one attempt later, with the plugin's attempts again.
UPDATE job_queue SET status = 'queued', attempt = attempt + 1,
                     max_attempts = attempt + :attempts, started_at = NULL,
                     completed_at = NULL, next_retry_at = NULL, last_error = NULL
WHERE id = :id AND status = :status AND attempt = :attempt;

-- name: adopt_snapshot
-- A configuration that ran before is adopted again under its old id.
INSERT INTO config_snapshots (id, config_hash, config, secret_fingerprints, created_at,
                              adopted_at)
VALUES (:id, :config_hash, :config, :secret_fingerprints, :now, :now)
ON CONFLICT (config_hash) DO UPDATE SET adopted_at = excluded.adopted_at
RETURNING id;

-- name: load_job
SELECT @job@ FROM job_queue WHERE id = :id;

-- name: result_of
SELECT result FROM job_log WHERE id = :id;
