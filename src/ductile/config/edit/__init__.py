"""In-place edits of configuration files that keep comments."""
