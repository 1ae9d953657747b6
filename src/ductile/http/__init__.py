"""The HTTP edge: thin handlers that parse, call and render. `async` lives here alone."""
