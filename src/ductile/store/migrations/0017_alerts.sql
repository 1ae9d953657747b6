-- Alerts: the rules with their positions in the notices, the state of each (rule, group), and the
-- messages that were sent.

-- A rule of the configuration; `xact` and `notice_id` are the last notice that it has evaluated.
CREATE TABLE alert_rules (
  name           @key@ PRIMARY KEY,
  notice_id      @big@ NOT NULL,
  created_at     @key@ NOT NULL,
  seen_at        @key@ NOT NULL,
  silenced_until @key@,
  silenced_by    @key@
);

-- As in `notices`: where a ledger is moved to another server, both get its transaction id.
-- engine: sqlite
ALTER TABLE alert_rules ADD COLUMN xact INTEGER NOT NULL DEFAULT 0;
-- engine: all
-- engine: postgres
ALTER TABLE alert_rules ADD COLUMN xact BIGINT NOT NULL
  DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint);
-- engine: all

CREATE TABLE alerts (
  rule        @key@ NOT NULL,
  alert_group @key@ NOT NULL,
  state       @key@ NOT NULL CHECK (state IN ('ok', 'pending', 'firing')),
  number      @big@ NOT NULL DEFAULT 0,
  since       @key@,
  armed_at    @key@,
  notified_at @key@,
  reported    INTEGER NOT NULL DEFAULT 0,
  flapping    INTEGER NOT NULL DEFAULT 0,
  flips       TEXT NOT NULL DEFAULT '[]',
  causes      TEXT NOT NULL DEFAULT '{}',
  updated_at  @key@ NOT NULL,
  PRIMARY KEY (rule, alert_group)
);

-- One row per message. The key makes a second message of one transition impossible.
CREATE TABLE alert_notifications (
  rule        @key@ NOT NULL,
  alert_group @key@ NOT NULL,
  number      @big@ NOT NULL,
  news        @key@ NOT NULL,
  target      @key@ NOT NULL,
  job_id      @key@,
  run_id      @key@,
  message     TEXT NOT NULL,
  created_at  @key@ NOT NULL,
  PRIMARY KEY (rule, alert_group, number)
);
CREATE INDEX alert_notifications_created ON alert_notifications (created_at);
CREATE INDEX alert_notifications_run ON alert_notifications (run_id) WHERE run_id IS NOT NULL;

-- Only the few notices that a rule may watch are in it.
-- engine: sqlite
CREATE INDEX notices_alerts ON notices (id)
  WHERE type IN ('job.dead', 'job.failed', 'pipeline.failed', 'breaker.open');
-- engine: all
-- engine: postgres
CREATE INDEX notices_alerts ON notices (xact, id)
  WHERE type IN ('job.dead', 'job.failed', 'pipeline.failed', 'breaker.open');
-- engine: all
