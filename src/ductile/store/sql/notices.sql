-- name: insert_notice
INSERT INTO notices (topic, type, job_id, plugin, payload, created_at)
VALUES (:topic, :type, :job_id, :plugin, :payload, :now) @returning_id@;

-- name: newest_notice
SELECT created_at FROM notices ORDER BY id DESC LIMIT 1;

-- name: notice
SELECT 1 FROM notices WHERE id = :id;

-- name: notices_after
SELECT id, topic, type, job_id, payload, created_at, xact FROM notices
WHERE id > :after ORDER BY id LIMIT :limit;

-- name: notices_after [postgres]
-- No notice can appear any more below the oldest running transaction, so that a reader which
-- continues from there misses none. By ids alone it would.
SELECT id, topic, type, job_id, payload, created_at, xact FROM notices
WHERE (xact, id) > (:xact, :after)
  AND xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)
ORDER BY xact, id LIMIT :limit;

-- name: notice_sizes
-- Of the rows of `notices_after`.
SELECT octet_length(payload) FROM notices WHERE id > :after ORDER BY id LIMIT :limit;

-- name: notice_sizes [postgres]
SELECT octet_length(payload) FROM notices
WHERE (xact, id) > (:xact, :after)
  AND xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)
ORDER BY xact, id LIMIT :limit;

-- name: notices_before_last
-- The notice that is `skipped` before the last.
SELECT xact, id FROM notices ORDER BY id DESC LIMIT 1 OFFSET :skipped;

-- name: notices_before_last [postgres]
SELECT xact, id FROM notices
WHERE xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)
ORDER BY xact DESC, id DESC LIMIT 1 OFFSET :skipped;

-- name: notices_held
-- Whether some have to wait for the end of an older transaction.
SELECT 1 WHERE FALSE;

-- name: notices_held [postgres]
-- By the last one in order: with a condition only, the planner may read all of them.
SELECT 1 FROM (SELECT xact FROM notices ORDER BY xact DESC, id DESC LIMIT 1) last
WHERE xact >= CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint);
