"""Pages for people: the API documentation and the dashboard."""
