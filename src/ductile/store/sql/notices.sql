-- name: insert_notice
INSERT INTO notices (topic, type, job_id, plugin, payload, created_at)
VALUES (:topic, :type, :job_id, :plugin, :payload, :now) @returning_id@;

-- name: notice
SELECT 1 FROM notices WHERE id = :id;

-- name: notices_after
SELECT id, topic, type, job_id, payload, created_at, xact FROM notices
WHERE id > :after ORDER BY id LIMIT :limit;

-- name: notices_after [postgres]
-- Below the oldest transaction that still runs nothing can appear any more: whoever reads on
-- from there misses nothing, which by ids alone it would.
SELECT id, topic, type, job_id, payload, created_at, xact FROM notices
WHERE (xact, id) > (:xact, :after)
  AND xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)
ORDER BY xact, id LIMIT :limit;

-- name: notice_sizes
-- Of those that `notices_after` finds.
SELECT octet_length(payload) FROM notices WHERE id > :after ORDER BY id LIMIT :limit;

-- name: notice_sizes [postgres]
SELECT octet_length(payload) FROM notices
WHERE (xact, id) > (:xact, :after)
  AND xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)
ORDER BY xact, id LIMIT :limit;

-- name: notices_before_last
-- The notice that stands `skipped` before the last.
SELECT xact, id FROM notices ORDER BY id DESC LIMIT 1 OFFSET :skipped;

-- name: notices_before_last [postgres]
SELECT xact, id FROM notices
WHERE xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)
ORDER BY xact DESC, id DESC LIMIT 1 OFFSET :skipped;

-- name: notices_held
-- Whether there are some that have to wait for an older transaction to end.
SELECT 1 WHERE FALSE;

-- name: notices_held [postgres]
-- By the last in order: for a condition alone the planner may read them all.
SELECT 1 FROM (SELECT xact FROM notices ORDER BY xact DESC, id DESC LIMIT 1) last
WHERE xact >= CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint);
