"""Alerts in the ledger: their rows, what they observe, and the transaction that evaluates them."""
