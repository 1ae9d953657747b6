"""Firing schedules, and promoting due retries."""
