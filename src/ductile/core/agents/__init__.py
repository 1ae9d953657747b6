"""Agents: heartbeats, reminders and decision logs."""
