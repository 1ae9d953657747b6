-- The rows of one rate key are found by a row of the key itself, because only one of them can start
-- when the rate allows it: `limit_key` is the separator and the rate key, `pipeline` the separator.
-- The others are no longer in the order of the plugin, but in that of their rate key.
ALTER TABLE set_aside_keys ADD COLUMN rate_key @key@;
CREATE INDEX set_aside_keys_first ON set_aside_keys (plugin, place)
  WHERE held_until IS NULL AND full_key IS NULL AND rate_key IS NULL;
CREATE INDEX set_aside_keys_of_rate ON set_aside_keys (plugin, rate_key, place)
  WHERE held_until IS NULL AND full_key IS NULL AND rate_key IS NOT NULL;
CREATE INDEX set_aside_keys_rates ON set_aside_keys (plugin, rate_key, held_until)
  WHERE rate_key IS NOT NULL;
-- The jobs return to the order; the next claims set them aside again where they are held.
UPDATE job_queue SET set_aside = CASE WHEN place IS NULL THEN 0 ELSE 2 END WHERE set_aside = 1;
DELETE FROM set_aside_keys;
