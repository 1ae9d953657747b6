"""Files that `ductile system demo` copies: a configuration and example plugins."""
