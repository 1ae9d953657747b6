"""Pipelines, their runs, and what these wait for."""
