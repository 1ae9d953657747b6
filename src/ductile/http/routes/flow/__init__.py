"""Routes of flow control."""
