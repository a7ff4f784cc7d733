"""Embeddings, rankings and classes over HTTP: JSON to messages and back."""
