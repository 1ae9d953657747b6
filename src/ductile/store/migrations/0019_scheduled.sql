-- The schedule entry that started a run; the open runs of an entry are found by an index.
ALTER TABLE scopes ADD COLUMN schedule_id @key@;
CREATE INDEX scopes_scheduled ON scopes (pipeline, schedule_id)
  WHERE schedule_id IS NOT NULL AND status = 'open';
