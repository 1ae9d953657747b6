"""Agents: whether they live, what they can do, what they decide, what to remind them of."""
