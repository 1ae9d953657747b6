"""Edit configuration files in place and keep their comments."""
