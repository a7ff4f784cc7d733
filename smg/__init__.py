"""The router between clients and engines."""
