"""Tokens, sessions, accepted signatures and the audit log."""
