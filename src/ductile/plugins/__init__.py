"""Plugins on disk: what a manifest says, what may be trusted, which ones are loaded."""
