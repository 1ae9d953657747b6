"""Alerts: which problems a rule watches, when it reports them, and what its message says."""
