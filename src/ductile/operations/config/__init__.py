"""What an operator does with the configuration: check it, edit one setting, seal it."""
