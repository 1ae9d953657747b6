"""What an operator reads: lists and figures."""
