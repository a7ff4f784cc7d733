"""The gateway behind a stock Envoy: HTTP requests carried by gRPC (smg.edge.v1), answered by the same handlers."""
