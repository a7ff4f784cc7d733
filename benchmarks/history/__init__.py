"""Measures responses that are kept: many at a time over PostgreSQL, and many in a bounded memory."""
