"""Metrics, health, tracing, job logging, systemd notifications."""
