-- Waiting steps of pipelines. The job of a step that waits is `queued` with a retry that never
-- comes; this row says what it waits for, and later how the wait ended.
CREATE TABLE waits (
  id          @key@ PRIMARY KEY,
  job_id      @key@ NOT NULL,
  attempt     INTEGER NOT NULL,
  kind        @key@ NOT NULL CHECK (kind IN ('approval', 'event', 'until', 'for')),
  pipeline    @key@ NOT NULL,
  step_path   @key@ NOT NULL,
  title       TEXT NOT NULL DEFAULT '',
  description TEXT NOT NULL DEFAULT '',
  event_type  @key@,
  condition   TEXT,
  on_timeout  @key@ NOT NULL,
  token_hash  @key@,
  created_at  @key@ NOT NULL,
  due_at      @key@,
  status      @key@ NOT NULL DEFAULT 'waiting'
              CHECK (status IN ('waiting', 'approved', 'rejected', 'matched', 'elapsed', 'expired',
                                'cancelled')),
  ended_at    @key@,
  ended_by    TEXT,
  comment     TEXT
);
CREATE UNIQUE INDEX waits_job ON waits (job_id, attempt);
CREATE INDEX waits_due ON waits (due_at) WHERE status = 'waiting' AND due_at IS NOT NULL;
CREATE INDEX waits_event ON waits (event_type, id)
  WHERE status = 'waiting' AND event_type IS NOT NULL;
CREATE INDEX waits_approvals ON waits (created_at, id) WHERE kind = 'approval';
CREATE INDEX waits_token ON waits (token_hash) WHERE token_hash IS NOT NULL;
CREATE INDEX waits_open ON waits (kind, created_at, id) WHERE status = 'waiting';
CREATE INDEX waits_ended ON waits (ended_at) WHERE ended_at IS NOT NULL;
