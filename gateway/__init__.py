"""HTTP/JSON in front of the router: routes, shapes and sinks of the OpenAI-compatible API."""
