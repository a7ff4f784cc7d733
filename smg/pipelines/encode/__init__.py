"""Requests to encoders: embeddings, rankings, classes."""
