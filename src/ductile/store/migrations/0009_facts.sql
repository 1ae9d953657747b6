-- Facts are append-only: no row is changed, and only retention deletes rows.

-- engine: sqlite
-- With AUTOINCREMENT, so that the id of a pruned fact is not given again.
CREATE TABLE plugin_facts_new (
  id          @identity@,
  seq         @big@ NOT NULL,
  plugin_name @key@ NOT NULL,
  fact_type   @key@ NOT NULL,
  job_id      @key@,
  command     @key@,
  fact_json   TEXT NOT NULL,
  created_at  @key@ NOT NULL,
  UNIQUE (plugin_name, seq)
);
INSERT INTO plugin_facts_new (id, seq, plugin_name, fact_type, job_id, command, fact_json, created_at)
SELECT id, seq, plugin_name, fact_type, job_id, command, fact_json, created_at
FROM plugin_facts ORDER BY id;
DROP TABLE plugin_facts;
ALTER TABLE plugin_facts_new RENAME TO plugin_facts;
-- engine: all

-- Retention writes a row here before it deletes facts, and deletes it in the same transaction.
CREATE TABLE fact_pruning (
  older_than @key@ NOT NULL
);

-- engine: sqlite
CREATE TRIGGER plugin_facts_are_final BEFORE UPDATE ON plugin_facts BEGIN SELECT RAISE(ABORT, 'plugin_facts rows cannot be changed'); END;
CREATE TRIGGER plugin_facts_are_kept BEFORE DELETE ON plugin_facts WHEN NOT EXISTS (SELECT 1 FROM fact_pruning WHERE OLD.created_at < older_than) BEGIN SELECT RAISE(ABORT, 'plugin_facts rows are deleted by retention only'); END;
-- REPLACE deletes rows without the trigger above.
CREATE TRIGGER plugin_facts_are_new BEFORE INSERT ON plugin_facts WHEN EXISTS (SELECT 1 FROM plugin_facts WHERE id = NEW.id OR (plugin_name = NEW.plugin_name AND seq = NEW.seq)) BEGIN SELECT RAISE(ABORT, 'plugin_facts rows cannot be replaced'); END;
-- engine: all
-- engine: postgres
CREATE FUNCTION plugin_facts_are_final() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'plugin_facts rows cannot be changed'; END $$;
CREATE TRIGGER plugin_facts_are_final BEFORE UPDATE ON plugin_facts FOR EACH ROW EXECUTE FUNCTION plugin_facts_are_final();
CREATE FUNCTION plugin_facts_are_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NOT EXISTS (SELECT 1 FROM fact_pruning WHERE OLD.created_at < older_than) THEN RAISE EXCEPTION 'plugin_facts rows are deleted by retention only'; END IF; RETURN OLD; END $$;
CREATE TRIGGER plugin_facts_are_kept BEFORE DELETE ON plugin_facts FOR EACH ROW EXECUTE FUNCTION plugin_facts_are_kept();
CREATE FUNCTION plugin_facts_are_new() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF EXISTS (SELECT 1 FROM plugin_facts WHERE id = NEW.id) THEN RAISE EXCEPTION 'plugin_facts rows cannot be replaced'; END IF; RETURN NEW; END $$;
CREATE TRIGGER plugin_facts_are_new BEFORE INSERT ON plugin_facts FOR EACH ROW EXECUTE FUNCTION plugin_facts_are_new();
-- engine: all
