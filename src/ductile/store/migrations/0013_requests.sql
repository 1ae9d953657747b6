-- PostgreSQL: what nodes read of each other while nothing follows the stream, and vacuum settings.

-- engine: postgres
CREATE INDEX notices_requests ON notices (xact, id) WHERE type = 'job.cancel_requested';

-- A job leaves dead rows and dead entries of the indexes that every claim reads. By default they
-- are removed only when a fifth of the table is dead, which takes days with a long history.
ALTER TABLE job_queue SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000,
                           autovacuum_vacuum_cost_delay = 1);
-- engine: all
