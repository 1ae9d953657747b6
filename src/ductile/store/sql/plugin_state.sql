-- name: state_of
SELECT state FROM plugin_state WHERE plugin_name = :plugin;

-- name: state_with_time
SELECT state, updated_at FROM plugin_state WHERE plugin_name = :plugin;

-- name: plugin_states
-- Every state that is not empty; of one with more bytes than `most` only the size.
SELECT plugin_name, octet_length(state), CASE WHEN octet_length(state) <= :most THEN state END,
       updated_at
FROM plugin_state WHERE state <> '{}' ORDER BY plugin_name;

-- name: state_for_update
SELECT state FROM plugin_state WHERE plugin_name = :plugin @for_update@;

-- name: ensure_state
INSERT INTO plugin_state (plugin_name, state, updated_at) VALUES (:plugin, '{}', :now)
ON CONFLICT (plugin_name) DO NOTHING;

-- name: set_state
UPDATE plugin_state SET state = :state, updated_at = :now WHERE plugin_name = :plugin;

-- name: insert_fact
INSERT INTO plugin_facts (seq, plugin_name, fact_type, job_id, command, fact_json, created_at)
SELECT coalesce(max(seq), 0) + 1, :plugin, :fact_type, :job_id, :command, :fact, :now
FROM plugin_facts WHERE plugin_name = :plugin;

-- name: facts_of
-- The newest first, before the cursor `before`.
SELECT id, seq, plugin_name, fact_type, job_id, command, fact_json, created_at
FROM plugin_facts WHERE plugin_name = :plugin AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: facts_of_type
SELECT id, seq, plugin_name, fact_type, job_id, command, fact_json, created_at
FROM plugin_facts WHERE plugin_name = :plugin AND fact_type = :fact_type AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- name: fact_sizes_of
-- Of the rows of `facts_of`.
SELECT octet_length(fact_json) FROM plugin_facts
WHERE plugin_name = :plugin AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: fact_sizes_of_type
-- Of the rows of `facts_of_type`.
SELECT octet_length(fact_json) FROM plugin_facts
WHERE plugin_name = :plugin AND fact_type = :fact_type AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- name: record_init
INSERT INTO plugin_inits (plugin, init_key, job_id, created_at)
VALUES (:plugin, :init_key, :job_id, :now)
ON CONFLICT (plugin, init_key) DO NOTHING;

-- name: init_done
SELECT 1 FROM plugin_inits WHERE plugin = :plugin AND init_key = :init_key;

-- name: init_outstanding
SELECT id FROM job_queue
WHERE plugin = :plugin AND command = 'init' AND status IN ('queued', 'running') LIMIT 1;

-- name: init_end
SELECT status, last_error FROM job_queue WHERE id = :id;

-- name: running_job_of_plugin
SELECT id FROM job_queue WHERE plugin = :plugin AND status = 'running' LIMIT 1;
