"""What an operator can ask about alerts."""
