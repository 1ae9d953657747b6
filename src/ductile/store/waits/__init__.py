"""Waiting steps: their rows, their parked jobs, and the events that end them."""
