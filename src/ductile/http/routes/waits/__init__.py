"""Approvals that pipelines wait for."""
