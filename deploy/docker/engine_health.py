"""Asks a gRPC server for its health, as the image's HEALTHCHECK: exit status 0 when it serves.

python engine_health.py HOST:PORT
"""

from __future__ import annotations

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PATIENCE_S = 5.0


def main() -> int:
    """Ask once."""
    with grpc.insecure_channel(sys.argv[1]) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=PATIENCE_S
            )
        except grpc.RpcError as error:
            sys.exit(error.code().name)
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main())
