"""SGLang's gRPC protocol (PyPI smg-grpc-proto), translated to and from smg.engine.v1."""
