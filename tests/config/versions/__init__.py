"""Earlier versions of a configuration's files."""
