"""Routes of alerts."""
