"""Commands that end with their caller."""
