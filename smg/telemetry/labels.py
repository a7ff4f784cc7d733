"""The values that labels may have: short lists, so that no client and no worker can add one."""

from __future__ import annotations

from smg.errors import SmgError

OTHER = "other"

# Codes of refusals that protect the router, by the word that the metric has for them.
REJECTIONS: dict[str, str] = {
    "admission_queue_full": "queue_full",
    "admission_queue_timeout": "queue_timeout",
    "worker_overload_protection_shed": "overload",
    "tenant_rate_limit_exceeded": "tenant_rate_limit",
    "scheduler_queue_full": "scheduler_queue_full",
    "scheduler_queue_timeout": "scheduler_queue_timeout",
    "scheduler_preempted": "preempted",
}

# Codes that stand for no class of their own in smg/errors.py.
_MORE_CODES = (
    "audio_output_not_supported",
    "constraint_not_supported",
    "media_extra_missing",
    "media_processor_unavailable",
    "multimodal_not_supported",
    "process_messages_failed",
    "prompt_logprobs_missing",
    "slow_reader",
    "tokenizer_unavailable",
    "unknown_url",
    "unsupported_content_part",
    "unsupported_output_modality",
    "worker_stream_failed",
)

_LOWEST_STATUS, _HIGHEST_STATUS = 100, 599
# Statuses that this gateway gives itself; a worker's own others are counted by class.
_STATUSES = frozenset(
    (200, 202, 204, 206, 304, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 499, 500, 501, 502, 503, 504)
)  # fmt: skip


def _codes_below(kind: type[SmgError]) -> set[str]:
    return {kind.default_code}.union(*(_codes_below(each) for each in kind.__subclasses__()))


ERROR_CODES = frozenset(_codes_below(SmgError)) | REJECTIONS.keys() | frozenset(_MORE_CODES)


def error_code(code: str) -> str:
    """The code of an error where it is one of ours; workers may send any."""
    return code if code in ERROR_CODES else OTHER


def status_text(status: int) -> str:
    """An HTTP status where it is one of ours, else its class."""
    if status in _STATUSES:
        return str(status)
    return f"{status // 100}xx" if _LOWEST_STATUS <= status <= _HIGHEST_STATUS else OTHER
