-- name: record_heartbeats
-- A batch of heartbeats, one per agent; capabilities are kept.
INSERT INTO gateway_heartbeats (agent_id, cluster_id, last_seen_at, received_at)
SELECT value ->> 0, value ->> 1, value ->> 2, :now FROM json_each(:heartbeats) WHERE TRUE
ON CONFLICT (agent_id) DO UPDATE
SET cluster_id = excluded.cluster_id, last_seen_at = excluded.last_seen_at,
    received_at = excluded.received_at;

-- name: record_heartbeats [postgres]
INSERT INTO gateway_heartbeats (agent_id, cluster_id, last_seen_at, received_at)
SELECT value ->> 0, value ->> 1, value ->> 2, :now
FROM jsonb_array_elements(CAST(:heartbeats AS jsonb)) AS heartbeat(value)
ON CONFLICT (agent_id) DO UPDATE
SET cluster_id = excluded.cluster_id, last_seen_at = excluded.last_seen_at,
    received_at = excluded.received_at;

-- name: record_contact
-- A contact other than a heartbeat, which may not name the cluster.
INSERT INTO gateway_heartbeats (agent_id, cluster_id, last_seen_at, received_at)
VALUES (:agent_id, coalesce(CAST(:cluster_id AS TEXT), ''), :last_seen_at, :now)
ON CONFLICT (agent_id) DO UPDATE
SET cluster_id = coalesce(CAST(:cluster_id AS TEXT), gateway_heartbeats.cluster_id),
    last_seen_at = excluded.last_seen_at, received_at = excluded.received_at;

-- name: set_capabilities
-- No row means that the capabilities are unchanged.
UPDATE gateway_heartbeats SET capabilities = :capabilities
WHERE agent_id = :agent_id AND capabilities IS DISTINCT FROM CAST(:capabilities AS TEXT);

-- name: alive_agents
SELECT agent_id, cluster_id, received_at FROM gateway_heartbeats
WHERE received_at BETWEEN :oldest AND :newest ORDER BY received_at DESC LIMIT :limit;

-- name: newest_contact
-- A scan while the dashboard is open and other nodes exist, for all subscribers: see `overdue_agents`.
SELECT max(received_at) FROM gateway_heartbeats;

-- name: overdue_agents
-- Agents that count as alive without a recent contact; also those whose last contact is in the
-- future, from before the clock was set back. A scan twice per minute: an index would slow down
-- every heartbeat.
SELECT agent_id, cluster_id, received_at FROM gateway_heartbeats
WHERE received_at NOT BETWEEN :oldest AND :newest LIMIT :limit;

-- name: evict_agent
-- Guarded by the contact that was judged: no row means a newer contact, or an earlier eviction.
UPDATE gateway_heartbeats SET received_at = NULL, capabilities = NULL
WHERE agent_id = :agent_id AND received_at = :received_at;

-- name: agents
SELECT agent_id, cluster_id, last_seen_at, received_at, capabilities FROM gateway_heartbeats
WHERE agent_id > :after
  AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)
  AND (CAST(:oldest AS TEXT) IS NULL OR received_at BETWEEN :oldest AND :newest)
ORDER BY agent_id LIMIT :limit;

-- name: capable_agents
SELECT agent_id, cluster_id, last_seen_at, received_at, capabilities FROM gateway_heartbeats
WHERE capabilities IS NOT NULL AND agent_id > :after ORDER BY agent_id LIMIT :limit;
