"""The configuration in force: compiled, checked, replaced as a whole."""
