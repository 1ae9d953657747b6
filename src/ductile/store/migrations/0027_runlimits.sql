-- Limits of the runs of a pipeline per key. `limit_key` is the key of a run of a pipeline with a
-- limit. A run with `held_since` waits for its turn, in the order of that time, and does not count;
-- the latest time means that its first event is still debounced. A run is counted as long as it is
-- open and not held: there is no other record of it.
ALTER TABLE scopes ADD COLUMN limit_key @key@;
ALTER TABLE scopes ADD COLUMN held_since @key@;
-- The newer run of its key for which this one is being cancelled (`on_full: cancel`).
ALTER TABLE scopes ADD COLUMN displaced_by @key@;
CREATE INDEX scopes_of_key ON scopes (pipeline, limit_key)
  WHERE status = 'open' AND limit_key IS NOT NULL AND held_since IS NULL;
CREATE INDEX scopes_held ON scopes (pipeline, limit_key, held_since, id)
  WHERE status = 'open' AND held_since IS NOT NULL;
CREATE INDEX scopes_debounced ON scopes (id)
  WHERE status = 'open' AND held_since = '9999-12-31T23:59:59.999999Z';
CREATE INDEX scopes_displaced ON scopes (id)
  WHERE status = 'open' AND displaced_by IS NOT NULL;
