-- name: newest_boot
SELECT started_at FROM boots ORDER BY id DESC LIMIT 1;

-- name: oldest_boot
SELECT started_at FROM boots ORDER BY id LIMIT 1;

-- name: oldest_ready
-- Each plugin's first ready job: a loose index scan, as in `ready_heads`. Without jobs set aside,
-- which a limit or a pause holds.
WITH RECURSIVE ready(plugin) AS (
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0)
  UNION ALL
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
            AND plugin > ready.plugin)
  FROM ready WHERE ready.plugin IS NOT NULL
)
SELECT head.plugin, head.id, head.created_at FROM ready JOIN job_queue head
  ON head.seq = (SELECT first.seq FROM job_queue first
                 WHERE first.plugin = ready.plugin AND first.status = 'queued'
                   AND first.next_retry_at IS NULL AND first.set_aside = 0
                 ORDER BY first.seq LIMIT 1)
WHERE ready.plugin IS NOT NULL;

-- name: waiting_after_error
-- Queued and running jobs whose last error has this prefix: each by the index of its status,
-- because most rows are finished jobs.
SELECT id, last_error FROM (
  SELECT id, last_error FROM job_queue WHERE status = 'queued' AND next_retry_at IS NOT NULL
  UNION ALL
  SELECT id, last_error FROM job_queue
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
  UNION ALL
  SELECT id, last_error FROM job_queue
  WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0
  UNION ALL
  SELECT id, last_error FROM job_queue WHERE status = 'running') AS unfinished
WHERE substr(last_error, 1, length(CAST(:cause AS TEXT))) = :cause LIMIT :limit;

-- name: dead_webhook_deliveries
SELECT count(*) FROM webhook_deliveries WHERE status = 'dead';

-- name: dead_relay_deliveries
SELECT count(*) FROM relay_deliveries WHERE status = 'dead';

-- name: old_transactions [postgres]
-- Sessions of this database that keep a snapshot open.
SELECT pid, coalesce(nullif(application_name, ''), usename, '?') AS who,
       CAST(xact_start AS text) AS since
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL
  AND extract(epoch FROM now() - xact_start) > :seconds
ORDER BY xact_start LIMIT 10;

-- name: stream_holders
-- Sessions whose open transaction holds back the notices of later transactions.
SELECT 0 AS pid, '' AS who, '' AS place, 0.0 AS seconds WHERE FALSE;

-- name: stream_holders [postgres]
-- In any database of the server, because transaction ids are shared. The server shows the start of
-- another user's transaction only to members of pg_read_all_stats. Without it, the age is that of the
-- first notice that waits.
SELECT pid, coalesce(nullif(application_name, ''), usename, '?') AS who,
       coalesce(datname, '?') AS place,
       CAST(greatest(0, coalesce(
         extract(epoch FROM clock_timestamp() - xact_start),
         (SELECT extract(epoch FROM clock_timestamp() - CAST(created_at AS timestamptz))
          FROM notices
          WHERE xact >= CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)
                        - age(backend_xid)
          ORDER BY xact, id LIMIT 1)
       )) AS double precision) AS seconds
FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
ORDER BY seconds DESC LIMIT 10;
