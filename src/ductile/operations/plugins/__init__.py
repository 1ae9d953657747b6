"""What an operator does with plugins: build their environments, install and update them."""
