"""Routes that change what a gateway runs: its configuration and its plugins."""
