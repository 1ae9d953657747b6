-- name: register_node
-- A drained node stays drained when it starts again.
INSERT INTO nodes (name, boot, version, config_hash, labels, plugins, pipelines, workers,
                   workspaces, schema_version, started_at, seen_at)
VALUES (:name, :boot, :version, :config_hash, :labels, :plugins, :pipelines, :workers,
        :workspaces, :schema_version, @database_time@, @database_time@)
ON CONFLICT (name) DO UPDATE
SET boot = excluded.boot, version = excluded.version, config_hash = excluded.config_hash,
    labels = excluded.labels, plugins = excluded.plugins, pipelines = excluded.pipelines,
    workers = excluded.workers, workspaces = excluded.workspaces,
    schema_version = excluded.schema_version, seen_at = excluded.seen_at, stopped_at = NULL,
    started_at = CASE WHEN nodes.boot = excluded.boot THEN nodes.started_at
                      ELSE excluded.started_at END;

-- name: name_boot
UPDATE boots SET node = :name WHERE id = :boot;

-- name: delete_unseen_nodes
-- Nodes that have been away for so long that no job waits for them.
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
SELECT name, boot, version, schema_version, config_hash, labels, plugins, pipelines, workers,
       workspaces, started_at, seen_at, stopped_at, drained_at, @seconds_since_seen@ AS seconds_since_seen,
       (SELECT count(*) FROM job_queue
        WHERE job_queue.status = 'running' AND job_queue.owner = nodes.boot) AS jobs
FROM nodes ORDER BY name;

-- name: present_nodes
SELECT name FROM nodes WHERE stopped_at IS NULL OR @seconds_since_seen@ < :seconds;

-- name: pipelines_of_other_nodes
SELECT pipelines FROM nodes WHERE boot <> :boot;

-- name: pipelines_of_running_nodes
SELECT boot, pipelines FROM nodes WHERE stopped_at IS NULL;

-- name: insert_node_request
INSERT INTO node_requests (id, boot, kind, job_id, reason, created_at)
VALUES (:id, :boot, :kind, :job_id, :reason, :now)
ON CONFLICT (id) DO NOTHING;

-- name: open_node_requests
SELECT id, kind, job_id, reason FROM node_requests
WHERE boot = :boot AND answered_at IS NULL ORDER BY created_at LIMIT 1000;

-- name: delete_node_requests
DELETE FROM node_requests WHERE id @is_given@;

-- name: answer_node_request
UPDATE node_requests SET answer = :answer, answered_at = :now WHERE id = :id;

-- name: answers_of_nodes
SELECT id, answer FROM node_requests
WHERE answered_at IS NOT NULL AND id @is_given@;

-- name: prune_node_requests
DELETE FROM node_requests WHERE id IN (
  SELECT id FROM node_requests WHERE created_at < :before ORDER BY created_at LIMIT :limit);
