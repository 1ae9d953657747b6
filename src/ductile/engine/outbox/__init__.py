"""Sending webhook deliveries and relayed events."""
