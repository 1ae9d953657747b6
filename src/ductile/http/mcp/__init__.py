"""The Model Context Protocol: tools, resources and prompts over the rows of the route table."""
