"""Flags of the original gateway that are not settings here: what to say to a command line that uses one."""

from __future__ import annotations

# Nothing would change if they were obeyed: they are taken, with a note.
ALREADY_SO = {
    "--worker-overload-protection": "it is on unless switched off",
    "--worker-auto-recovery": "a lost worker is connected to until it answers",
    "--no-remove-unhealthy-workers": "an unhealthy worker stays registered and comes back when it is well",
}

_NAMES = """
    backend balance-token-usage-threshold cache-boundaries cache-index cache-match-threshold
    cache-ttl-secs decode decode-policy decode-selector disable-tokenizer-autoload
    dp-minimum-tokens-scheduler enable-igw enable-mesh enable-rl enable-wasm encode encode-policy
    encode-selector epd-disaggregation header-read-timeout-secs health-check-endpoint
    jemalloc-prof-dir job-queue-capacity job-queue-concurrency jwt-audience jwt-issuer jwt-jwks-uri
    jwt-role-mapping kv-connector-annotation kv-engine-id-annotation kv-index
    least-load-default-throughput least-load-kv-pressure-weight least-load-max-waiting-requests
    least-load-mean-prefill-tokens log-dir log-mm-timing
    max-buffered-request-bytes mesh-advertise-host mesh-host mesh-peer-urls
    mesh-port mesh-server-name mesh-tls-ca-cert mesh-tls-cert mesh-tls-key
    mm-allow-private-media-hosts mm-allowed-media-domains mm-per-request-image-limit
    mm-pixel-cache-mb mm-pixel-rdma mm-processing model-id-from multimodal-max-inflight-bytes
    multimodal-shm-min-bytes multimodal-tensor-transport no-worker-auto-recovery
    oracle-connect-descriptor oracle-external-auth oracle-password oracle-pool-max oracle-pool-min
    oracle-pool-timeout-secs oracle-tns-alias oracle-username oracle-wallet-path overlap-decay
    overload-token-usage-threshold parser pd-admission-wait-secs pd-disaggregation
    power-of-two-load-metric prefill prefill-max-inflight-requests-per-worker prefill-policy
    prefill-queue-size prefill-queue-timeout-secs prefill-selector priority-scheduler-config
    priority-scheduler-default-max-class priority-scheduler-enabled
    priority-scheduler-tenant-metric-top-n rdma-listen-ip rdma-slot-ttl-s remove-unhealthy-workers
    rl-control-timeout-secs rl-fanout-concurrency router-selector schema-config
    selection-accounting-ttl-ms selection-policy selection-temperature spill-abs-threshold
    spill-rel-threshold sticky-key-idle-secs sticky-sessions storage-context-headers
    storage-hook-wasm-path stream-body-stall-timeout-secs tenant-rate-limit-config
    tenant-rate-limit-enabled tokenizer-cache-enable-l0 tokenizer-cache-enable-l1
    tokenizer-cache-l0-max-entries tokenizer-cache-l0-max-memory tokenizer-cache-l1-max-memory
    upstream-http2 upstream-pool-idle-timeout-secs worker-stale-secs worker-stall-secs
    worker-startup-check-interval worker-startup-delay worker-warmup-blocks
    worker-warmup-divert-every worker-warmup-secs worker-warmup-share worker-warmup-thin-ratio
    zmq-engine-count
"""

# To take one of these and do nothing would be a lie, so they are refused by name.
NOT_SERVED_YET = frozenset(f"--{name}" for name in _NAMES.split())
