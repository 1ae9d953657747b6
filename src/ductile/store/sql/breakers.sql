-- name: breaker
SELECT state, failure_count, opened_at, last_failure_at, last_job_id, probe_job_id
FROM circuit_breakers WHERE plugin = :plugin AND command = :command;

-- name: breakers
-- With the error of the newest job that counted, as long as the job is kept.
SELECT b.*, j.last_error AS cause
FROM circuit_breakers b LEFT JOIN job_queue j ON j.id = b.last_job_id
WHERE (CAST(:plugin AS TEXT) IS NULL OR b.plugin = :plugin) ORDER BY b.plugin, b.command;

-- name: store_breaker
INSERT INTO circuit_breakers (plugin, command, state, failure_count, opened_at,
                              last_failure_at, last_job_id, probe_job_id, updated_at)
VALUES (:plugin, :command, :state, :failure_count, :opened_at, :last_failure_at,
        :last_job_id, :probe_job_id, :now)
ON CONFLICT (plugin, command) DO UPDATE
SET state = excluded.state, failure_count = excluded.failure_count,
    opened_at = excluded.opened_at, last_failure_at = excluded.last_failure_at,
    last_job_id = excluded.last_job_id, probe_job_id = excluded.probe_job_id,
    updated_at = excluded.updated_at;

-- name: insert_breaker_transition
INSERT INTO circuit_breaker_transitions (id, plugin, command, from_state, to_state,
                                         failure_count, reason, job_id, created_at)
VALUES (:id, :plugin, :command, :from_state, :to_state, :failure_count, :reason, :job_id, :now);

-- name: breaker_transitions
SELECT * FROM circuit_breaker_transitions WHERE plugin = :plugin
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: open_breakers
SELECT DISTINCT plugin FROM circuit_breakers WHERE state <> 'closed';
