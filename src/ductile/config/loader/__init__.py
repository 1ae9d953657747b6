"""From files to one merged tree: YAML, includes, variables."""
