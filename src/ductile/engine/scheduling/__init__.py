"""Timed work: schedules, retries, waits, pauses, waiting runs, retention, clock changes."""
