"""Files that `ductile system demo` copies: a configuration and three example plugins."""
