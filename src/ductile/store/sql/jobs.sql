-- name: load_job
SELECT @job@ FROM job_queue WHERE id = :id;

-- name: job
SELECT job_queue.*, (SELECT boots.node FROM boots WHERE boots.id = job_queue.owner) AS node
FROM job_queue WHERE id = :id;

-- name: job_summaries
-- Without payloads, which may be large.
SELECT seq, id, plugin, command, status, attempt, max_attempts, submitted_by, submitter,
       dedupe_key, dedupe_ttl, created_at, started_at, completed_at,
       NULLIF(next_retry_at, @never@) AS next_retry_at, last_error,
       parent_job_id, source_event_id, owner, enqueued_snapshot_id, started_snapshot_id,
       schedule_id, slot, event_context_id, entered_context_id, hops, pipeline, step_path,
       branch, scope_id, join_of, replay_of, acknowledged_at, acknowledged_by
FROM job_queue;

-- Lists of jobs, the newest first. Which of them is used depends on the filters, so that each reads
-- an index in the order of the page: see store/jobs/read.py. A condition repeats that of its index.

-- name: jobs
@job_summaries@ @by_index@ job_queue_created
WHERE @job_page@;

-- name: jobs_of_kinds
-- A kind of jobs is a plugin, a command and a producer. Each is found with one index probe, as the
-- number of one of its jobs; of those that match the newest jobs are read, and merged. The next kind
-- is looked for column by column: SQLite would use the first alone of three that are compared at once.
WITH RECURSIVE kinds(seq) AS (
  SELECT (SELECT seq FROM job_queue @by_index@ job_queue_kind
          WHERE plugin >= coalesce(CAST(:plugin AS TEXT), '')
          ORDER BY plugin, command, submitted_by LIMIT 1)
  UNION ALL
  SELECT coalesce(
    (SELECT seq FROM job_queue @by_index@ job_queue_kind
     WHERE plugin = last.plugin AND command = last.command AND submitted_by > last.submitted_by
     ORDER BY plugin, command, submitted_by LIMIT 1),
    (SELECT seq FROM job_queue @by_index@ job_queue_kind
     WHERE plugin = last.plugin AND command > last.command
     ORDER BY plugin, command, submitted_by LIMIT 1),
    (SELECT seq FROM job_queue @by_index@ job_queue_kind
     WHERE plugin > last.plugin ORDER BY plugin, command, submitted_by LIMIT 1))
  FROM kinds JOIN job_queue last ON last.seq = kinds.seq
  WHERE CAST(:plugin AS TEXT) IS NULL OR last.plugin = :plugin
)
@job_summaries@ WHERE seq IN (
  SELECT page.value FROM kinds JOIN job_queue kind ON kind.seq = kinds.seq, @each_seq_of@ (
    SELECT seq FROM job_queue @by_index@ job_queue_kind
    WHERE plugin = kind.plugin AND command = kind.command AND submitted_by = kind.submitted_by
      AND @job_page@) AS newest @end_of_each@ AS page
  WHERE @kind_filter@)
ORDER BY created_at DESC, seq DESC LIMIT :limit;

-- name: jobs_of_pipeline
-- The same for the jobs of one pipeline.
WITH RECURSIVE kinds(seq) AS (
  SELECT (SELECT seq FROM job_queue @by_index@ job_queue_pipeline_kind
          WHERE pipeline <> '' AND pipeline = :pipeline
          ORDER BY plugin, command, submitted_by LIMIT 1)
  UNION ALL
  SELECT coalesce(
    (SELECT seq FROM job_queue @by_index@ job_queue_pipeline_kind
     WHERE pipeline <> '' AND pipeline = :pipeline
       AND plugin = last.plugin AND command = last.command AND submitted_by > last.submitted_by
     ORDER BY plugin, command, submitted_by LIMIT 1),
    (SELECT seq FROM job_queue @by_index@ job_queue_pipeline_kind
     WHERE pipeline <> '' AND pipeline = :pipeline
       AND plugin = last.plugin AND command > last.command
     ORDER BY plugin, command, submitted_by LIMIT 1),
    (SELECT seq FROM job_queue @by_index@ job_queue_pipeline_kind
     WHERE pipeline <> '' AND pipeline = :pipeline AND plugin > last.plugin
     ORDER BY plugin, command, submitted_by LIMIT 1))
  FROM kinds JOIN job_queue last ON last.seq = kinds.seq
)
@job_summaries@ WHERE seq IN (
  SELECT page.value FROM kinds JOIN job_queue kind ON kind.seq = kinds.seq, @each_seq_of@ (
    SELECT seq FROM job_queue @by_index@ job_queue_pipeline_kind
    WHERE pipeline <> '' AND pipeline = kind.pipeline AND plugin = kind.plugin
      AND command = kind.command AND submitted_by = kind.submitted_by
      AND @job_page@) AS newest @end_of_each@ AS page
  WHERE @kind_filter@)
ORDER BY created_at DESC, seq DESC LIMIT :limit;

-- name: jobs_without_success
@job_summaries@ @by_index@ job_queue_status
WHERE @without_success@ AND status = :status AND @job_page@;

-- name: jobs_of_plugin_without_success
@job_summaries@ @by_index@ job_queue_plugin_status
WHERE @without_success@ AND status = :status AND plugin = :plugin AND @job_page@;

-- name: jobs_of_pipeline_without_success
@job_summaries@ @by_index@ job_queue_pipeline_status
WHERE @without_success@ AND status = :status AND pipeline <> '' AND pipeline = :pipeline
  AND @job_page@;

-- name: jobs_unresolved
-- Of one command of a plugin.
@job_summaries@ @by_index@ job_queue_unresolved
WHERE @unresolved@ AND plugin = :plugin AND command = :command AND status = :status AND @job_page@;

-- name: jobs_running
@job_summaries@ @by_index@ job_queue_running
WHERE status = 'running' AND @job_page@;

-- name: jobs_queued
-- In the order of the queue, the last first.
@job_summaries@ @by_index@ job_queue_pending
WHERE status IN ('queued', 'running') AND status = 'queued'
  AND seq < :before AND created_at >= :since AND created_at < :at AND @job_filter@
ORDER BY seq DESC LIMIT :limit;

-- name: created_at_of_seq
-- Of the job with this number, or of the one before it if that is pruned.
SELECT created_at FROM job_queue WHERE seq <= :seq ORDER BY seq DESC LIMIT 1;

-- name: pending_jobs
-- Queued and running jobs, in queue order.
@job_summaries@ @by_index@ job_queue_pending
WHERE status IN ('queued', 'running') ORDER BY seq LIMIT :limit;

-- name: job_ids_with_prefix
-- The first ids from `prefix` to `beyond`, of the queue and of the log. In the log every job is one
-- index probe: the next job's attempts follow after `:`, which sorts after the digits.
WITH RECURSIVE logged(id, number) AS (
  SELECT (SELECT substr(id, 1, length(id) - length('-' || attempt)) FROM job_log
          WHERE id >= :prefix AND id < :beyond ORDER BY id LIMIT 1), 1
  UNION ALL
  SELECT (SELECT substr(id, 1, length(id) - length('-' || attempt)) FROM job_log
          WHERE id > logged.id || '-:' AND id < :beyond ORDER BY id LIMIT 1), number + 1
  FROM logged WHERE logged.id IS NOT NULL AND number < :limit
)
SELECT id FROM (SELECT id FROM job_queue WHERE id >= :prefix AND id < :beyond
                ORDER BY id LIMIT :limit) AS queued
UNION
SELECT id FROM logged WHERE id >= :prefix
ORDER BY id LIMIT :limit;

-- name: job_ids_with_suffix
-- `tail` is the last two characters of the suffix.
WITH found AS MATERIALIZED (
  SELECT id FROM job_queue @by_index@ job_queue_id_end WHERE substr(id, length(id) - 1) = :tail)
SELECT id FROM found WHERE substr(id, length(id) - length(:suffix) + 1) = :suffix
ORDER BY id LIMIT :limit;

-- name: logged_job_ids_with_suffix
-- Of jobs past retention, by their attempts. No index helps.
SELECT DISTINCT id FROM (
  SELECT substr(id, 1, length(id) - length('-' || attempt)) AS id FROM job_log) AS logged
WHERE substr(id, length(id) - length(:suffix) + 1) = :suffix
ORDER BY id LIMIT :limit;

-- Jobs of a bulk action, the oldest first.

-- name: jobs_to_cancel
SELECT id FROM job_queue @by_index@ job_queue_pending
WHERE status IN ('queued', 'running') AND created_at >= :since AND created_at < :until
  AND @job_filter@
ORDER BY seq LIMIT :limit;

-- name: jobs_to_retry
SELECT id FROM job_queue @by_index@ job_queue_status
WHERE @without_success@ AND status IN ('failed', 'dead') AND created_at >= :since
  AND created_at < :until AND @job_filter@
ORDER BY seq LIMIT :limit;

-- name: jobs_to_acknowledge
SELECT id FROM job_queue @by_index@ job_queue_unresolved
WHERE @unresolved@ AND status IN ('failed', 'dead') AND created_at >= :since
  AND created_at < :until AND @job_filter@
ORDER BY seq LIMIT :limit;

-- name: acknowledge_job
UPDATE job_queue SET acknowledged_at = :now, acknowledged_by = :actor
WHERE id = :id AND status IN ('failed', 'dead') AND @unresolved@;

-- name: failing_commands
-- Each plugin, command and state of unresolved jobs is found with one index probe, as in
-- `jobs_of_kinds`. Of each at most `most` jobs are counted, failed ones since `since` only.
WITH RECURSIVE kinds(seq, number) AS (
  SELECT (SELECT seq FROM job_queue @by_index@ job_queue_unresolved WHERE @unresolved@
          ORDER BY plugin, command, status LIMIT 1), 1
  UNION ALL
  SELECT coalesce(
    (SELECT seq FROM job_queue @by_index@ job_queue_unresolved WHERE @unresolved@
       AND plugin = last.plugin AND command = last.command AND status > last.status
     ORDER BY plugin, command, status LIMIT 1),
    (SELECT seq FROM job_queue @by_index@ job_queue_unresolved WHERE @unresolved@
       AND plugin = last.plugin AND command > last.command
     ORDER BY plugin, command, status LIMIT 1),
    (SELECT seq FROM job_queue @by_index@ job_queue_unresolved WHERE @unresolved@
       AND plugin > last.plugin ORDER BY plugin, command, status LIMIT 1)), number + 1
  FROM kinds JOIN job_queue last ON last.seq = kinds.seq
  WHERE number < :kinds
), newest AS (
  SELECT (SELECT seq FROM job_queue @by_index@ job_queue_unresolved WHERE @unresolved@
            AND plugin = kind.plugin AND command = kind.command AND status = kind.status
          ORDER BY created_at DESC, seq DESC LIMIT 1) AS seq
  FROM kinds JOIN job_queue kind ON kind.seq = kinds.seq
), failing AS (
  SELECT j.seq, j.status, j.plugin, j.command, j.id AS job_id, j.created_at, j.completed_at,
         j.last_error, j.pipeline, j.step_path
  FROM newest JOIN job_queue j ON j.seq = newest.seq
  WHERE j.status = 'dead' OR (j.status = 'failed' AND j.created_at >= :since)
  ORDER BY j.completed_at DESC, j.seq DESC LIMIT :limit
)
SELECT failing.status, failing.plugin, failing.command,
  (SELECT count(*) FROM (
     SELECT 1 FROM job_queue @by_index@ job_queue_unresolved WHERE @unresolved@
       AND plugin = failing.plugin AND command = failing.command AND status = failing.status
       AND created_at >= CASE failing.status WHEN 'failed' THEN :since ELSE '' END
     LIMIT :most) AS counted) AS jobs,
  job_id, created_at, completed_at, last_error, pipeline, step_path
FROM failing ORDER BY completed_at DESC, seq DESC;

-- name: job_transitions
-- The last thousand, each with the number of earlier ones.
SELECT from_status, to_status, attempt, reason, created_at, older FROM (
  SELECT id, from_status, to_status, attempt, reason, created_at,
         row_number() OVER (ORDER BY id) - 1 AS older
  FROM job_transitions WHERE job_id = :id ORDER BY id DESC LIMIT 1000) AS latest
ORDER BY id;

-- name: result_of
SELECT result FROM job_log WHERE id = :id;

-- name: workspace_in_use
-- By the job itself, by a following job, or by the join of a split after it, which starts with
-- the same files.
SELECT 1 FROM job_queue j WHERE (id = :id OR parent_job_id = :id)
  AND (status IN ('queued', 'running')
       OR EXISTS (@open_around_j@ AND around.parent_job_id = :id)) LIMIT 1;
