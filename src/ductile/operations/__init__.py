"""What an operator can ask for; used by HTTP and CLI alike."""
