"""Rules of requests, on the protobuf."""
