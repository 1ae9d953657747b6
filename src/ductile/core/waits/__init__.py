"""Waiting steps of pipelines: parsed, begun, and ended by a decision, an event or a time."""
