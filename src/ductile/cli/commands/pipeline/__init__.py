"""`ductile pipeline`."""
