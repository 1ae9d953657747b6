"""Schedules and breakers: when an entry fires, and why it does not."""
