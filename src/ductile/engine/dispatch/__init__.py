"""From a claimed job to its settlement."""
