"""Jobs: states, retries, what runs, and what an outcome means."""
