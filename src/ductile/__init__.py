"""Ductile: an automation gateway."""

__version__ = "0.1.0"
