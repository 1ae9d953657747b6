"""What an operator can ask of flow control."""
