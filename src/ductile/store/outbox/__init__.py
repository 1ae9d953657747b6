"""Rows to be sent over HTTP: webhook deliveries for agents, and events for other gateways."""
