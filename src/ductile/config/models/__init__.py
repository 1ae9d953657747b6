"""The settings of each section, as pydantic models."""
