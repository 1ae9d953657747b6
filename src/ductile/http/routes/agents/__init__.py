"""Routes for agents and their operators."""
