"""The Responses API over HTTP."""
