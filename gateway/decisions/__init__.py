"""Typed questions over HTTP: the OpenAI form and the state form of /v1/decisions, and System One."""
