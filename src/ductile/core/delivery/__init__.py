"""WebhookOutbox: retries, signatures, payloads, allowed addresses, relay."""
