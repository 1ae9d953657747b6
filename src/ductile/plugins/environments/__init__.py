"""The dependencies of Python plugins: what they declare, how it is locked, where it is built."""
