-- name: insert_boot
INSERT INTO boots (id, pid, version, started_at) VALUES (:id, :pid, :version, :now);

-- name: resume_boot
UPDATE boots SET ended_at = NULL WHERE id = :id;

-- name: end_boot
UPDATE boots SET ended_at = :now WHERE id = :id AND ended_at IS NULL;

-- name: delete_boot
DELETE FROM boots WHERE id = :id;

-- name: open_boot
SELECT 1 FROM boots WHERE id = :id AND ended_at IS NULL;

-- name: other_open_boots
-- The boots whose end is not recorded.
SELECT id FROM boots WHERE ended_at IS NULL AND id <> :id;

-- name: running_owners
SELECT DISTINCT owner FROM job_queue WHERE status = 'running';

-- name: adopt_snapshot
-- A configuration that ran before keeps its id.
INSERT INTO config_snapshots (id, config_hash, config, secret_fingerprints, created_at,
                              adopted_at)
VALUES (:id, :config_hash, :config, :secret_fingerprints, :now, :now)
ON CONFLICT (config_hash) DO UPDATE SET adopted_at = excluded.adopted_at
RETURNING id;

-- name: snapshot_history
-- A configuration that returned is listed once, where it was put in force last.
SELECT id, config_hash, created_at, adopted_at FROM config_snapshots
ORDER BY adopted_at DESC, id DESC LIMIT :limit;

-- name: snapshot
SELECT id, config, secret_fingerprints, config_hash FROM config_snapshots WHERE id = :id;
