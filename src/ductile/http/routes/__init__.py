"""The handlers: parse, call, render."""
