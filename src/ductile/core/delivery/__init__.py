"""Deliveries: retries, signatures, payloads, allowed addresses, relay."""
