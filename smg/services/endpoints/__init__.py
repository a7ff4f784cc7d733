"""Endpoint discovery: tells Envoy which routers and engines there are, and how they are."""
