-- name: job_attempts
-- An attempt's id is the job's id, a hyphen and its number. Ids contain hyphens too, so the range
-- (`.` follows the hyphen) only serves the index. Returns the last attempts of up to 4 MiB, at
-- least one, each with the number of earlier ones.
WITH sized AS (
  SELECT seq, attempt, coalesce(octet_length(result), 0) + coalesce(octet_length(last_error), 0)
         + coalesce(octet_length(stdout), 0) + coalesce(octet_length(stderr), 0)
         + coalesce(octet_length(logs), 0) AS size
  FROM job_log WHERE id > :id || '-' AND id < :id || '.' AND id = :id || '-' || attempt
), summed AS (
  SELECT seq, row_number() OVER (ORDER BY attempt) - 1 AS older,
         row_number() OVER (ORDER BY attempt DESC) AS place,
         sum(size) OVER (ORDER BY attempt DESC) AS total FROM sized
)
SELECT l.*, @node_of_attempt@ AS node, summed.older FROM summed JOIN job_log l ON l.seq = summed.seq
WHERE summed.place = 1 OR summed.total <= 4194304 ORDER BY l.attempt;

-- name: attempt_sizes
SELECT seq, coalesce(octet_length(result), 0),
       coalesce(octet_length(last_error), 0) + coalesce(octet_length(stdout), 0)
       + coalesce(octet_length(stderr), 0) + coalesce(octet_length(logs), 0)
FROM job_log;

-- name: attempts
-- The newest first, before the cursor `before`: which they are and how large.
@attempt_sizes@ WHERE seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: attempts_of_plugin
@attempt_sizes@ WHERE plugin = :plugin AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: attempts_of_job
-- By the index, as in `job_attempts`.
@attempt_sizes@ WHERE id > :job_id || '-' AND id < :job_id || '.' AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- name: matching_attempts
-- Among the given ones. The caller checks times whose text order is not time order.
SELECT l.seq, l.completed_at
FROM @given@ JOIN job_log l ON l.seq = CAST(given.id AS @big@)
WHERE (CAST(:job_id AS TEXT) IS NULL OR l.id = :job_id || '-' || l.attempt)
  AND (CAST(:plugin AS TEXT) IS NULL OR l.plugin = :plugin)
  AND (CAST(:command AS TEXT) IS NULL OR l.command = :command)
  AND (CAST(:status AS TEXT) IS NULL OR l.status = :status)
  AND (CAST(:submitted_by AS TEXT) IS NULL OR l.submitted_by = :submitted_by)
  AND (CAST(:since AS TEXT) IS NULL OR l.completed_at >= :since
       OR l.completed_at @not_our_time@)
  AND (CAST(:until AS TEXT) IS NULL OR l.completed_at <= :until
       OR l.completed_at @not_our_time@)
  AND (CAST(:text AS TEXT) IS NULL
       OR @place@(lower(l.last_error @collate@), :text) > 0
       OR @place@(lower(l.stderr @collate@), :text) > 0
       OR @place@(lower(l.result @collate@), :text) > 0)
ORDER BY l.seq DESC;

-- name: attempts_by_seq
SELECT l.seq, l.id, l.job_id, l.plugin, l.command, l.status,
       CASE WHEN :results THEN l.result END AS result, l.attempt, l.submitted_by, l.created_at,
       l.started_at, l.completed_at, l.duration_ms, l.last_error, l.stdout, l.stderr, l.logs,
       l.parent_job_id, l.source_event_id, l.boot, @node_of_attempt@ AS node
FROM @given@ JOIN job_log l ON l.seq = CAST(given.id AS @big@)
ORDER BY l.seq DESC;

-- name: attempt_logs
-- The logs of a job's attempts from one on, by the index as in `job_attempts`.
SELECT attempt, status, stderr, logs FROM job_log
WHERE id > :id || '-' AND id < :id || '.' AND id = :id || '-' || attempt AND attempt >= :attempt
ORDER BY attempt LIMIT :limit;
