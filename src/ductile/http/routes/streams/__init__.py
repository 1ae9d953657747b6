"""Responses that stay open: server-sent events."""
