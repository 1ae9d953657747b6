-- When an endpoint last accepted a request is found by its name. The two indexes replace those of the
-- time alone, so that a request writes as many entries as before. Without those, nodes of older
-- versions delete old requests more slowly.
DROP INDEX webhook_receipts_created;
CREATE INDEX webhook_receipts_newest ON webhook_receipts (endpoint, created_at);
DROP INDEX webhook_signatures_created;
CREATE INDEX webhook_signatures_newest ON webhook_signatures (endpoint, created_at);
