"""`ductile system`: one module per group of actions."""
