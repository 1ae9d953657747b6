-- A failed or dead job that an operator has looked at and leaves as it is. The index has the jobs that
-- nobody has looked at yet, without those that were ended on purpose. A query uses it only if it has the
-- same condition: a change of `ENDED_ON_PURPOSE` takes another index.
ALTER TABLE job_queue ADD COLUMN acknowledged_at @key@;
ALTER TABLE job_queue ADD COLUMN acknowledged_by @key@;
CREATE INDEX job_queue_unresolved ON job_queue (plugin, command, status, created_at, seq)
  WHERE status <> 'queued' AND status <> 'running' AND status <> 'succeeded' AND status <> 'skipped'
    AND acknowledged_at IS NULL
    AND CASE WHEN status = 'dead' AND (last_error = 'cancelled'
      OR last_error = 'cancelled by an operator'
      OR last_error = 'superseded by a newer job with the same key'
      OR last_error = 'superseded by a newer run with the same key'
      OR last_error = 'superseded by a newer schedule slot'
      OR substr(last_error, 1, 17) = 'superseded by run') THEN 1 ELSE 0 END = 0;
