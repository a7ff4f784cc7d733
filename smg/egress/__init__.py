"""Connections to addresses that clients name."""
