"""The tools, by what they do: look, act on jobs, and change the gateway."""
