-- Agents, what is delivered to others, and what other gateways relay to us.

-- The last sign of life of each agent: one row, never deleted by us.
CREATE TABLE gateway_heartbeats (
  agent_id     @key@ PRIMARY KEY,
  cluster_id   @key@ NOT NULL,
  last_seen_at @key@ NOT NULL,
  -- The gateway's own time, by which agents are evicted; last_seen_at is what the agent said.
  received_at  @key@,
  capabilities TEXT
);

-- Reminders: once, or by a 5-field cron rule in UTC.
CREATE TABLE cron_jobs (
  id           @identity@,
  agent_id     @key@ NOT NULL,
  schedule     @key@,
  next_fire_at @key@ NOT NULL,
  payload      TEXT NOT NULL,
  is_one_time  BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX cron_jobs_due ON cron_jobs (next_fire_at);

CREATE TABLE webhook_configs (
  id                @identity@,
  source_identifier @key@ NOT NULL,
  event_type        @key@ NOT NULL,
  agent_intent      @key@ NOT NULL,
  target_session    @key@ NOT NULL,
  secret            TEXT NOT NULL,
  target_url        TEXT,
  plugin            @key@,
  pipeline          @key@,
  created_at        @key@,
  -- Its deliveries still name it.
  removed_at        @key@
);
CREATE UNIQUE INDEX webhook_configs_source ON webhook_configs (source_identifier, event_type)
  WHERE removed_at IS NULL;

CREATE TABLE webhook_deliveries (
  id                @identity@,
  webhook_id        @big@ NOT NULL REFERENCES webhook_configs (id),
  session_id        @key@ NOT NULL,
  payload           TEXT NOT NULL,
  target_url        TEXT NOT NULL,
  signature         @key@ NOT NULL,
  status            @key@ NOT NULL CHECK (status IN ('pending', 'delivered', 'failed', 'dead')),
  attempt_count     @big@ NOT NULL DEFAULT 0,
  last_attempted_at @key@,
  next_retry_at     @key@,
  created_at        @key@ NOT NULL,
  error_detail      TEXT,
  -- What the receiver knows it by, however often it is sent.
  message_id        @key@,
  -- The boot that sends it now.
  owner             @key@
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (status, next_retry_at);
CREATE INDEX webhook_deliveries_owner ON webhook_deliveries (owner) WHERE owner IS NOT NULL;

-- As many sends as there are slots may start in one cycle, whichever nodes start them.
CREATE TABLE delivery_slots (
  slot     @big@ PRIMARY KEY,
  taken_at @key@ NOT NULL
);
INSERT INTO delivery_slots (slot, taken_at) VALUES
  (1, '0001-01-01T00:00:00.000000Z'), (2, '0001-01-01T00:00:00.000000Z'),
  (3, '0001-01-01T00:00:00.000000Z'), (4, '0001-01-01T00:00:00.000000Z'),
  (5, '0001-01-01T00:00:00.000000Z');

-- Events for another gateway.
CREATE TABLE relay_deliveries (
  id                @key@ PRIMARY KEY,
  instance          @key@ NOT NULL,
  job_id            @key@,
  event_id          @key@ NOT NULL,
  event_type        @key@ NOT NULL,
  body              TEXT NOT NULL,
  status            @key@ NOT NULL CHECK (status IN ('pending', 'delivered', 'failed', 'dead')),
  attempt_count     @big@ NOT NULL DEFAULT 0,
  last_attempted_at @key@,
  next_retry_at     @key@,
  created_at        @key@ NOT NULL,
  error_detail      TEXT,
  owner             @key@
);
CREATE INDEX relay_deliveries_due ON relay_deliveries (instance, status, next_retry_at);
CREATE INDEX relay_deliveries_status ON relay_deliveries (status, last_attempted_at);
CREATE INDEX relay_deliveries_owner ON relay_deliveries (owner) WHERE owner IS NOT NULL;

-- Events that another gateway has relayed to us, by its own id: each is taken in once.
CREATE TABLE relay_receipts (
  peer              @key@ NOT NULL,
  event_id          @key@ NOT NULL,
  receiver_event_id @key@ NOT NULL,
  job_id            @key@,
  created_at        @key@ NOT NULL,
  PRIMARY KEY (peer, event_id)
);
CREATE INDEX relay_receipts_created ON relay_receipts (created_at);

-- Requests of peers that were let in: the same bytes do not get in again.
CREATE TABLE relay_signatures (
  peer       @key@ NOT NULL,
  signature  @key@ NOT NULL,
  created_at @key@ NOT NULL,
  PRIMARY KEY (peer, signature)
);
CREATE INDEX relay_signatures_created ON relay_signatures (created_at);
