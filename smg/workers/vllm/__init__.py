"""vLLM's gRPC protocol (PyPI smg-grpc-proto): SGLang's shape with other messages, translated to and from smg.engine.v1."""
