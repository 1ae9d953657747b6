-- Who changed what, which signed requests were accepted, and who submitted a job.

-- One row per administrative action and failed login. Rows are never changed, and kept for a year.
CREATE TABLE audit_log (
  id         @identity@,
  created_at @key@ NOT NULL,
  actor      @key@ NOT NULL,
  source     @key@ NOT NULL,
  action     @key@ NOT NULL,
  target     TEXT,
  details    TEXT
);
-- engine: sqlite
CREATE TRIGGER audit_log_is_final BEFORE UPDATE ON audit_log BEGIN SELECT RAISE(ABORT, 'audit_log rows cannot be changed'); END;
CREATE TRIGGER audit_log_is_kept BEFORE DELETE ON audit_log WHEN OLD.created_at > @a_year_ago@ BEGIN SELECT RAISE(ABORT, 'audit_log rows are kept for a year'); END;
-- engine: all
-- engine: postgres
CREATE FUNCTION audit_log_is_final() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'audit_log rows cannot be changed'; END $$;
CREATE TRIGGER audit_log_is_final BEFORE UPDATE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_is_final();
CREATE FUNCTION audit_log_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'audit_log rows are kept for a year'; END $$;
CREATE TRIGGER audit_log_is_kept BEFORE DELETE ON audit_log FOR EACH ROW WHEN (OLD.created_at > @a_year_ago@) EXECUTE FUNCTION audit_log_is_kept();
-- engine: all

-- Signed requests that were accepted: the same signature is accepted again only after the time in
-- which it could be a replay.
CREATE TABLE webhook_signatures (
  endpoint    @key@ NOT NULL,
  signature   @key@ NOT NULL,
  accepted_as @key@,
  created_at  @key@ NOT NULL,
  PRIMARY KEY (endpoint, signature)
);
CREATE INDEX webhook_signatures_created ON webhook_signatures (created_at);

-- The name of the token or local user whose request created the job.
ALTER TABLE job_queue ADD COLUMN submitter @key@;
