"""Simulates a fleet of engines under the router's own policies."""
