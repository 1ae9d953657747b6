-- name: alert_rules
SELECT name, xact, notice_id, created_at, seen_at, silenced_until, silenced_by
FROM alert_rules ORDER BY name;

-- name: insert_alert_rule
INSERT INTO alert_rules (name, xact, notice_id, created_at, seen_at)
VALUES (:name, :xact, :notice_id, :now, :now) ON CONFLICT (name) DO NOTHING;

-- name: move_alert_rule
UPDATE alert_rules SET xact = :xact, notice_id = :notice_id WHERE name = :name;

-- name: see_alert_rule
UPDATE alert_rules SET seen_at = :now WHERE name = :name;

-- name: silence_alert_rule
UPDATE alert_rules SET silenced_until = :until, silenced_by = :by WHERE name = :name;

-- name: delete_alert_rule
DELETE FROM alert_rules WHERE name = :name;

-- name: delete_alerts_of_rule
DELETE FROM alerts WHERE rule = :name;

-- name: delete_notifications_of_rule
DELETE FROM alert_notifications WHERE rule = :name;

-- name: active_alerts
-- Those for which time alone may change something.
SELECT rule, alert_group, state, number, since, armed_at, notified_at, reported, flapping, flips,
       causes, updated_at
FROM alerts WHERE state <> 'ok' OR reported = 1 OR flapping = 1;

-- name: alert
SELECT rule, alert_group, state, number, since, armed_at, notified_at, reported, flapping, flips,
       causes, updated_at
FROM alerts WHERE rule = :rule AND alert_group = :group;

-- name: alerts_of_rule
-- Those that fail first, then the newest.
SELECT rule, alert_group, state, number, since, armed_at, notified_at, reported, flapping, flips,
       causes, updated_at
FROM alerts WHERE rule = :rule
ORDER BY CASE state WHEN 'firing' THEN 0 WHEN 'pending' THEN 1 ELSE 2 END, updated_at DESC,
         alert_group LIMIT :limit;

-- name: count_alerts
SELECT rule, state, count(*) FROM alerts WHERE state <> 'ok'
GROUP BY rule, state ORDER BY rule, state LIMIT 1000;

-- name: store_alert
-- Guarded by the number that was read: no row means that another process has changed it.
INSERT INTO alerts (rule, alert_group, state, number, since, armed_at, notified_at, reported,
                    flapping, flips, causes, updated_at)
VALUES (:rule, :group, :state, :number, :since, :armed_at, :notified_at, :reported, :flapping,
        :flips, :causes, :now)
ON CONFLICT (rule, alert_group) DO UPDATE
SET state = excluded.state, number = excluded.number, since = excluded.since,
    armed_at = excluded.armed_at, notified_at = excluded.notified_at,
    reported = excluded.reported, flapping = excluded.flapping, flips = excluded.flips,
    causes = excluded.causes, updated_at = excluded.updated_at
WHERE alerts.number = :before;

-- name: insert_notification
INSERT INTO alert_notifications (rule, alert_group, number, news, target, job_id, run_id, message,
                                 created_at)
VALUES (:rule, :group, :number, :news, :target, :job_id, :run_id, :message, :now);

-- name: next_notification_number
SELECT coalesce(max(number), 0) + 1 FROM alert_notifications
WHERE rule = :rule AND alert_group = :group;

-- name: notifications_of_rule
SELECT n.alert_group, n.number, n.news, n.target, n.job_id, n.run_id, n.message, n.created_at,
       j.status AS job_status, s.status AS run_status
FROM alert_notifications n LEFT JOIN job_queue j ON j.id = n.job_id
LEFT JOIN scopes s ON s.id = n.run_id
WHERE n.rule = :rule ORDER BY n.created_at DESC, n.number DESC LIMIT :limit;

-- name: undelivered_notifications
-- Messages whose job or run has failed or was skipped by a limit, or whose job has waited in the
-- queue since `late`, unless a later one of the same target has arrived. The newest that arrived is
-- found once per target, not per message.
WITH arrived(target, last_at) AS (
  SELECT a.target, max(a.created_at) FROM alert_notifications a
  LEFT JOIN job_queue k ON k.id = a.job_id LEFT JOIN scopes r ON r.id = a.run_id
  WHERE a.created_at >= :since
    AND (r.status = 'ended' OR (a.run_id IS NULL AND k.status = 'succeeded'))
  GROUP BY a.target
)
SELECT n.rule, n.alert_group, n.target, n.job_id, n.run_id, n.created_at,
       coalesce(j.last_error, s.reason,
                CASE WHEN j.status = 'queued' THEN 'its job has not started' END) AS error
FROM alert_notifications n LEFT JOIN job_queue j ON j.id = n.job_id
LEFT JOIN scopes s ON s.id = n.run_id LEFT JOIN arrived ON arrived.target = n.target
WHERE n.created_at >= :since
  AND (s.status IN ('failed', 'skipped')
       OR (n.run_id IS NULL AND j.status IN ('dead', 'failed', 'skipped'))
       OR (j.status = 'queued' AND n.created_at < :late
           AND (j.next_retry_at IS NULL OR j.next_retry_at < @never@)))
  AND (arrived.last_at IS NULL OR arrived.last_at <= n.created_at)
ORDER BY n.created_at DESC LIMIT :limit;

-- name: alert_events
-- The literals are those of the index.
SELECT id, topic, type, job_id, payload, created_at, xact FROM notices
WHERE id > :after AND :xact >= 0 AND type IN ('job.dead', 'job.failed', 'pipeline.failed', 'breaker.open')
ORDER BY id LIMIT :limit;

-- name: alert_events [postgres]
SELECT id, topic, type, job_id, payload, created_at, xact FROM notices
WHERE (xact, id) > (:xact, :after)
  AND xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)
  AND type IN ('job.dead', 'job.failed', 'pipeline.failed', 'breaker.open')
ORDER BY xact, id LIMIT :limit;

-- name: is_alert_job
-- Whether the job is a message of an alert, or follows from one.
WITH RECURSIVE up(id, parent, scope, submitted_by, depth) AS (
  SELECT id, parent_job_id, scope_id, submitted_by, 0 FROM job_queue WHERE id = :id
  UNION ALL
  SELECT j.id, j.parent_job_id, j.scope_id, j.submitted_by, up.depth + 1
  FROM job_queue j JOIN up ON j.id = up.parent WHERE up.depth < 1000
), around(id, parent) AS (
  SELECT s.id, s.parent_id FROM scopes s JOIN up ON s.id = up.scope
  UNION
  SELECT s.id, s.parent_id FROM scopes s JOIN around ON s.id = around.parent
)
SELECT 1 FROM up WHERE submitted_by = 'alert'
UNION ALL
SELECT 1 FROM around JOIN alert_notifications n ON n.run_id = around.id
LIMIT 1;

-- name: is_alert_run
SELECT 1 FROM alert_notifications WHERE run_id = :id;

-- name: run_of_job
-- The run of a job and its status, unless a split around the job continues without it.
WITH RECURSIVE around(parent_id, pipeline, status, join_always) AS (
  SELECT s.parent_id, s.pipeline, s.status, s.join_always
  FROM job_queue j JOIN scopes s ON s.id = j.scope_id WHERE j.id = :id
  UNION ALL
  SELECT s.parent_id, s.pipeline, s.status, around.join_always + s.join_always
  FROM scopes s JOIN around ON s.id = around.parent_id
)
SELECT pipeline, status FROM around WHERE parent_id IS NULL AND join_always = 0;

-- name: a_job_of_scope
SELECT id FROM job_queue WHERE scope_id = :id LIMIT 1;

-- name: job_successes
-- Successes of a command among the newest attempts of its plugin.
SELECT completed_at FROM (
  SELECT status, command, completed_at FROM job_log
  WHERE plugin = :plugin ORDER BY seq DESC LIMIT :window) AS newest
WHERE status = 'succeeded' AND command = :command;

-- name: run_successes
-- Successes among the newest runs of a pipeline.
SELECT ended_at FROM (
  SELECT status, ended_at FROM scopes WHERE pipeline = :pipeline AND split = ''
  ORDER BY created_at DESC, id DESC LIMIT :window) AS newest
WHERE status = 'ended' AND ended_at IS NOT NULL;

-- name: newest_attempts
-- The last success, and the oldest end, among the newest attempts of a plugin.
SELECT max(CASE WHEN status = 'succeeded' THEN completed_at END), min(completed_at) FROM (
  SELECT status, completed_at FROM job_log
  WHERE plugin = :plugin ORDER BY seq DESC LIMIT :window) AS newest;

-- name: last_accepted
-- When each endpoint last accepted a request: with a delivery id, and without one.
SELECT given.id, (SELECT max(r.created_at) FROM webhook_receipts r WHERE r.endpoint = given.id),
       (SELECT max(w.created_at) FROM webhook_signatures w WHERE w.endpoint = given.id)
FROM @given@;

-- name: missed_slots
-- The newest occurrences from a time on that did not fire although they should have.
SELECT slot, reason FROM schedule_slots
WHERE plugin = :plugin AND schedule_id = :schedule_id AND slot >= :since
  AND job_id IS NULL AND reason IN ('catch_up_skipped', 'unhealthy')
ORDER BY slot DESC LIMIT :limit;

-- name: first_expected_slot
-- The first occurrence from a time on that fired, or should have.
SELECT slot, reason FROM schedule_slots
WHERE plugin = :plugin AND schedule_id = :schedule_id AND slot >= :since
  AND (job_id IS NOT NULL OR reason IN ('catch_up_skipped', 'unhealthy'))
ORDER BY slot LIMIT 1;

-- name: silent_agents
SELECT agent_id, coalesce(received_at, last_seen_at) AS seen FROM gateway_heartbeats
WHERE coalesce(received_at, last_seen_at) < :before ORDER BY agent_id LIMIT :limit;

-- name: webhook_activity
-- The last delivery of each webhook that agents have registered, or its creation.
SELECT w.id, w.source_identifier, w.event_type,
       coalesce((SELECT max(d.created_at) FROM webhook_deliveries d WHERE d.webhook_id = w.id),
                w.created_at)
FROM webhook_configs w WHERE w.removed_at IS NULL ORDER BY w.id LIMIT :limit;

-- name: dead_deliveries_since
SELECT max(w.source_identifier || '/' || w.event_type), count(*),
       min(coalesce(d.last_attempted_at, d.created_at)),
       max(coalesce(d.last_attempted_at, d.created_at)), max(d.error_detail)
FROM webhook_deliveries d JOIN webhook_configs w ON w.id = d.webhook_id
WHERE d.status = 'dead' AND coalesce(d.last_attempted_at, d.created_at) >= :since
GROUP BY d.webhook_id ORDER BY d.webhook_id LIMIT :limit;

-- name: dead_relays_since
SELECT instance, count(*), min(last_attempted_at), max(last_attempted_at), max(error_detail)
FROM relay_deliveries WHERE status = 'dead' AND last_attempted_at >= :since
GROUP BY instance ORDER BY instance LIMIT :limit;

-- name: rejected_plugin_states
-- States in which a plugin has recorded that its provider rejects its tokens.
SELECT plugin_name, state FROM plugin_state
WHERE @place@(state, '"rejected_at"') > 0 AND octet_length(state) < 1000000
ORDER BY plugin_name LIMIT :limit;

-- name: oldest_unstarted
-- Each plugin's first ready job that has not been tried: a loose index scan.
WITH RECURSIVE ready(plugin) AS (
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0)
  UNION ALL
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
            AND plugin > ready.plugin)
  FROM ready WHERE ready.plugin IS NOT NULL
)
SELECT ready.plugin, j.id, j.created_at, j.pipeline FROM ready JOIN job_queue j ON j.seq = (
  SELECT min(seq) FROM job_queue
  WHERE plugin = ready.plugin AND status = 'queued' AND next_retry_at IS NULL AND set_aside = 0
    AND attempt = 1)
WHERE j.created_at < :before;

-- name: oldest_unstarted_aside
-- The same for jobs set aside, which a priority or a limit does: as a claim reads them, the first of
-- each limit key and pipeline by its place in the queue.
WITH RECURSIVE plugins(plugin) AS (
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0)
  UNION ALL
  SELECT (SELECT min(plugin) FROM job_queue
          WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside <> 0
            AND plugin > plugins.plugin)
  FROM plugins WHERE plugins.plugin IS NOT NULL
), keys(plugin, limit_key) AS (
  SELECT plugins.plugin,
         (SELECT min(limit_key) FROM job_queue j
          WHERE j.plugin = plugins.plugin AND j.status = 'queued' AND j.next_retry_at IS NULL
            AND j.set_aside <> 0)
  FROM plugins WHERE plugins.plugin IS NOT NULL
  UNION ALL
  SELECT keys.plugin,
         (SELECT min(limit_key) FROM job_queue j
          WHERE j.plugin = keys.plugin AND j.status = 'queued' AND j.next_retry_at IS NULL
            AND j.set_aside <> 0 AND j.limit_key > keys.limit_key)
  FROM keys WHERE keys.limit_key IS NOT NULL
), found(plugin, limit_key, pipeline) AS (
  SELECT keys.plugin, keys.limit_key,
         (SELECT min(pipeline) FROM job_queue j
          WHERE j.plugin = keys.plugin AND j.status = 'queued' AND j.next_retry_at IS NULL
            AND j.set_aside <> 0 AND j.limit_key = keys.limit_key)
  FROM keys WHERE keys.limit_key IS NOT NULL
  UNION ALL
  SELECT found.plugin, found.limit_key,
         (SELECT min(pipeline) FROM job_queue j
          WHERE j.plugin = found.plugin AND j.status = 'queued' AND j.next_retry_at IS NULL
            AND j.set_aside <> 0 AND j.limit_key = found.limit_key
            AND j.pipeline > found.pipeline)
  FROM found WHERE found.pipeline IS NOT NULL
)
SELECT found.plugin, j.id, j.created_at, j.pipeline FROM found JOIN job_queue j ON j.seq = (
  SELECT first.seq FROM job_queue first
  WHERE first.plugin = found.plugin AND first.limit_key = found.limit_key
    AND first.pipeline = found.pipeline AND first.status = 'queued'
    AND first.next_retry_at IS NULL AND first.set_aside <> 0 AND first.attempt = 1
  ORDER BY coalesce(first.place, first.seq), first.seq LIMIT 1)
WHERE j.created_at < :before;

-- name: prune_notifications
DELETE FROM alert_notifications WHERE (rule, alert_group, number) IN (
  SELECT rule, alert_group, number FROM alert_notifications WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);

-- name: prune_alerts
-- Its numbers begin again, so none of its messages may remain.
DELETE FROM alerts WHERE (rule, alert_group) IN (
  SELECT a.rule, a.alert_group FROM alerts a
  WHERE a.state = 'ok' AND a.reported = 0 AND a.flapping = 0 AND a.updated_at < :before
    AND NOT EXISTS (SELECT 1 FROM alert_notifications n
                    WHERE n.rule = a.rule AND n.alert_group = a.alert_group)
  LIMIT :limit);
