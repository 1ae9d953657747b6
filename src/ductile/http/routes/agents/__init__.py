"""Routes under /gateway/, for agents and their operators."""
