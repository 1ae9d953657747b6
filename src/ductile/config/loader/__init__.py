"""Files to one merged tree: YAML, includes, variables."""
