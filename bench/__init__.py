"""Measurements. `python -m bench` runs them all; see docs/performance.md."""
