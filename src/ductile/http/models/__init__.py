"""Pydantic models of requests and responses: the source of parsing and of OpenAPI."""
