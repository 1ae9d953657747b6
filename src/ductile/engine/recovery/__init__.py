"""What a crash, a lost node or a cancelled job leaves to be cleaned up."""
