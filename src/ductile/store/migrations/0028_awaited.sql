-- Events that more waits may match than one transaction ends: the loop of the waits compares them
-- with the further ones, in batches.
CREATE TABLE awaited_events (
  id         @key@ PRIMARY KEY,
  event      TEXT NOT NULL,
  -- The id of the last wait that was compared; waits that began later than the event do not match.
  after_wait @key@ NOT NULL,
  created_at @key@ NOT NULL
);
