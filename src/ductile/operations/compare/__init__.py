"""What a changed plugin or configuration would do with recorded jobs; nothing is committed."""
