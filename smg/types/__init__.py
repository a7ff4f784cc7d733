"""The few plain values that are not wire messages."""
