"""`ductile plugin`."""
