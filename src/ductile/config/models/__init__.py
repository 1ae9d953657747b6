"""The pydantic model of each section."""
