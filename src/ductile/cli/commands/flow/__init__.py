"""Commands of flow control, which several nouns share."""
