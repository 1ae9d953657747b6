"""Measurements, each a question. `python -m bench` asks them all; docs/performance.md tells how."""
