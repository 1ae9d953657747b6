"""`ductile config`: create, check, plan, show, edit and seal a configuration."""
