# The router: HTTP on 30000, gRPC on 30001, probes on 30002, metrics on 29000. No torch, no root, no shell script.
#
#   docker build -f deploy/docker/router.Dockerfile -t smg-router .        (from the top of the repository)
#   docker run --read-only --tmpfs /tmp -p 30000:30000 smg-router launch --worker-urls grpc://engine:50051
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /src
RUN python -m venv /opt/smg
COPY pyproject.toml README.md LICENSE ./
COPY smg smg
COPY gateway gateway
COPY servicers servicers
COPY proto proto
# What the router may be asked for: databases for history, traces, MCP servers. Leave out what is not wanted.
ARG EXTRAS=history,otel,mcp
RUN /opt/smg/bin/pip install --no-cache-dir ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
RUN useradd --uid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin smg
COPY --from=build /opt/smg /opt/smg
ENV PATH=/opt/smg/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SMG_HEALTH_CHECK_PORT=30002 \
    SMG_PROMETHEUS_PORT=29000
USER 65532:65532
WORKDIR /tmp
EXPOSE 30000 30001 30002 29000
# Alive, not ready: a router without engines is none that must be started again.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:30002/liveness', timeout=3)"]
ENTRYPOINT ["smg"]
CMD ["launch"]
