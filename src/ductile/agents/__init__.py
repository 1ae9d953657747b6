"""Agents: heartbeats, capabilities, decision logs and reminders."""
