-- The tables of that program's ledger that matter to a move, with what they hold after a while.
CREATE TABLE job_queue (
  id TEXT PRIMARY KEY, plugin TEXT NOT NULL, command TEXT NOT NULL, payload JSON,
  status TEXT NOT NULL, attempt INTEGER NOT NULL DEFAULT 1,
  max_attempts INTEGER NOT NULL DEFAULT 4, submitted_by TEXT NOT NULL, dedupe_key TEXT,
  created_at TEXT NOT NULL, started_at TEXT, completed_at TEXT, next_retry_at TEXT,
  last_error TEXT, parent_job_id TEXT, source_event_id TEXT
);
CREATE TABLE plugin_state (
  plugin_name TEXT PRIMARY KEY, state JSON NOT NULL DEFAULT '{}', updated_at TEXT
);
CREATE TABLE plugin_facts (
  id TEXT PRIMARY KEY, seq INTEGER, plugin_name TEXT NOT NULL, fact_type TEXT NOT NULL,
  job_id TEXT NOT NULL, command TEXT NOT NULL, fact_json JSON NOT NULL, created_at TEXT NOT NULL
);
INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at) VALUES
  ('a', 'withings', 'poll', 'succeeded', 'scheduler', '2026-02-08T06:00:00Z'),
  ('b', 'withings', 'poll', 'queued', 'scheduler', '2026-02-08T07:00:00Z');
INSERT INTO plugin_state VALUES
  ('withings', '{"cursor": 41, "access_token": "a-token-from-before"}', '2026-02-08 06:00:02'),
  ('echo', '{}', NULL),
  ('broken', 'not json', NULL);
INSERT INTO plugin_facts VALUES
  ('f2', 2, 'withings', 'withings.snapshot', 'a', 'poll', '{"cursor": 41}', '2026-02-08T06:00:02Z'),
  ('f1', 1, 'withings', 'withings.snapshot', 'z', 'poll', '{"cursor": 40}', '2026-02-08T05:00:02Z');
CREATE TABLE schedule_entries (
  plugin TEXT NOT NULL, schedule_id TEXT NOT NULL, command TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'active', reason TEXT, last_fired_at TEXT,
  last_success_job_id TEXT, last_success_at TEXT, next_run_at TEXT, updated_at TEXT NOT NULL,
  PRIMARY KEY (plugin, schedule_id)
);
INSERT INTO schedule_entries VALUES
  ('withings', 'default', 'poll', 'active', NULL, '2026-02-08T06:00:00.123456789Z', 'a',
   '2026-02-08T06:00:02Z', '2026-02-08T07:00:02Z', '2026-02-08T06:00:02Z'),
  ('withings', 'once', 'poll', 'exhausted', 'one_shot_exhausted', '2026-01-01T00:00:30Z', NULL,
   NULL, NULL, '2026-01-01T00:00:30Z'),
  ('withings', 'held', 'poll', 'paused_manual', NULL, NULL, NULL, NULL, NULL,
   '2026-01-01T00:00:30Z'),
  ('withings', 'never', 'poll', 'paused_invalid', 'command_not_supported', NULL, NULL, NULL, NULL,
   '2026-01-01T00:00:30Z');
