"""Copies of a ledger, and transfers between the engines."""
