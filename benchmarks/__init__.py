"""Benchmarks of the gateway and of the engines; see README.md."""
