"""Waiting steps for operators: approvals, and what a waiting job waits for."""
