"""The demo: a story told over the API while it happens. It knows the server as any client does, by its HTTP API."""
