"""Creating and testing plugins, and the recipes for agents."""
