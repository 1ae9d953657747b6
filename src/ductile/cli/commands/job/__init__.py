"""`ductile job`."""
