-- PostgreSQL: versions before 0025 ask the node of a job to end it by a notice, which later versions
-- do not read. For a job that still runs, the notice becomes a request, and wakes the nodes.

-- engine: postgres
CREATE FUNCTION request_cancel() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO node_requests (id, boot, kind, job_id, reason, created_at) SELECT concat_ws(' ', j.id, j.attempt, j.owner), j.owner, 'cancel', j.id, CAST(NEW.payload AS json) ->> 'reason', NEW.created_at FROM job_queue j WHERE j.id = NEW.job_id AND j.status = 'running' AND j.owner = CAST(NEW.payload AS json) ->> 'owner' ON CONFLICT (id) DO NOTHING; IF FOUND THEN PERFORM pg_notify('ductile_nodes', 'q'); END IF; RETURN NULL; END $$;
CREATE TRIGGER request_cancel AFTER INSERT ON notices FOR EACH ROW WHEN (NEW.type = 'job.cancel_requested') EXECUTE FUNCTION request_cancel();
-- engine: all
