"""What a configuration would change if it were put in force; nothing is written."""
