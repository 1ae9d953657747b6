"""Metrics, liveness, job logging, systemd, retention."""
