-- The trace of a job, a pipeline run or a delivery: trace id, span that caused it, sampled flag. Null
-- where the request had none and tracing is off.
ALTER TABLE job_queue ADD COLUMN trace @key@;
ALTER TABLE scopes ADD COLUMN trace @key@;
ALTER TABLE webhook_deliveries ADD COLUMN trace @key@;
