-- name: register_node
-- A drained node stays drained when it starts again.
INSERT INTO nodes (name, boot, version, config_hash, labels, plugins, pipelines, workers,
                   workspaces, started_at, seen_at)
VALUES (:name, :boot, :version, :config_hash, :labels, :plugins, :pipelines, :workers,
        :workspaces, @database_time@, @database_time@)
ON CONFLICT (name) DO UPDATE
SET boot = excluded.boot, version = excluded.version, config_hash = excluded.config_hash,
    labels = excluded.labels, plugins = excluded.plugins, pipelines = excluded.pipelines,
    workers = excluded.workers, workspaces = excluded.workspaces, seen_at = excluded.seen_at, stopped_at = NULL,
    started_at = CASE WHEN nodes.boot = excluded.boot THEN nodes.started_at
                      ELSE excluded.started_at END;

-- name: name_boot
UPDATE boots SET node = :name WHERE id = :boot;

-- name: delete_unseen_nodes
-- Nodes that have been away for longer than anybody waits for them.
DELETE FROM nodes WHERE seen_at < @a_week_ago@;

-- name: delete_other_nodes
DELETE FROM nodes WHERE name <> :name;

-- name: renew_node
UPDATE nodes SET seen_at = @database_time@ WHERE boot = :boot RETURNING drained_at;

-- name: drain_node
UPDATE nodes SET drained_at = coalesce(drained_at, @database_time@) WHERE name = :name;

-- name: resume_node
UPDATE nodes SET drained_at = NULL WHERE name = :name;

-- name: delete_node
DELETE FROM nodes WHERE name = :name AND boot = :boot;

-- name: stop_node
UPDATE nodes SET stopped_at = @database_time@ WHERE boot = :boot;

-- name: boot_of_node
SELECT boot FROM nodes WHERE name = :name AND stopped_at IS NULL;

-- name: nodes
SELECT name, boot, version, config_hash, labels, plugins, pipelines, workers, workspaces,
       started_at, seen_at, stopped_at, drained_at, @seconds_since_seen@ AS seconds_since_seen,
       (SELECT count(*) FROM job_queue
        WHERE job_queue.status = 'running' AND job_queue.owner = nodes.boot) AS jobs
FROM nodes ORDER BY name;

-- name: present_nodes
SELECT name FROM nodes WHERE stopped_at IS NULL OR @seconds_since_seen@ < :seconds;
