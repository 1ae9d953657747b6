"""Dry runs of pipelines, steps and plugins; nothing is committed."""
