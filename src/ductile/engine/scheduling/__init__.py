"""Schedules that fire, and retries that become due."""
