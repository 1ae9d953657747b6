"""Handlers, one module per noun: they parse, call `operations/` and render."""
