"""The names of the parts of a gateway whose health is checked."""

from ductile.store.job_probe import Stage

CRITICAL_LOOPS = frozenset({"config", "scheduler", "retries", "nodes", "schema"})
"""Loops without which jobs do not start; the others delay only their own work."""
DEAD_MAN = "dead-man"
"""A loop, whose requests to the outside monitor may fail."""
LEDGER, FILE, DISPATCHER = "ledger", "ledger file", "dispatcher"
UNDELIVERED = "undelivered alerts"
PARTS = (LEDGER, FILE, *Stage, DISPATCHER, UNDELIVERED)
"""Every part besides the loops."""
CRITICAL = CRITICAL_LOOPS | {*PARTS} - {UNDELIVERED}
"""Those that the condition `health` of alerts watches."""
