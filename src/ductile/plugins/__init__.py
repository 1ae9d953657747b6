"""Plugins on disk: manifests, trust rules, discovery, validation and scaffolding."""
