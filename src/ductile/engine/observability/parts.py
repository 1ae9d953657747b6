"""The names of the parts of a gateway whose health is checked."""

from ductile.store.job_probe import Stage

CRITICAL_LOOPS = frozenset({"config", "scheduler", "retries", "nodes", "schema"})
"""Loops without which jobs do not start; the others delay only their own work."""
MONITOR = "outside monitor"
"""The requests that report to it that the gateway lives."""
LEDGER, FILE, DISPATCHER = "ledger", "ledger file", "dispatcher"
UNDELIVERED = "undelivered alerts"
PARTS = (LEDGER, FILE, *Stage, DISPATCHER, UNDELIVERED, MONITOR)
"""Every part besides the loops."""
CRITICAL = CRITICAL_LOOPS | {*PARTS} - {UNDELIVERED, MONITOR}
"""Those that the condition `health` of alerts watches."""
