"""Rows that wait to be sent: webhook deliveries and relayed events."""
