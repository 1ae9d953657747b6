"""Accepting work: jobs, webhooks, and the tokens that callers present."""
