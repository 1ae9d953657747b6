"""From commits to subscribers."""
