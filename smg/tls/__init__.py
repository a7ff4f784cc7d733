"""Certificates, keys and authorities: read and checked, given out as contexts, and read again when they change."""
