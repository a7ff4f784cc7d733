"""Answers SGLang's scheduler protocol (PyPI smg-grpc-proto) for any engine, so that gateways which speak it can use ours."""
