"""The OpenAI-compatible API: JSON shapes to protobuf, and sinks back."""
