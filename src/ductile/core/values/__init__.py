"""JSON values, redaction, regular expressions, scopes, suggestions."""
