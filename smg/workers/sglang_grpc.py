"""A worker on SGLang's gRPC protocol: one call per sequence, all of them on one connection and without tasks.

The protocol has no session: readiness is a description that was answered and health checks that pass, the load is
asked for, and a lost connection shows in every call on it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from functools import partial
from typing import TYPE_CHECKING

from smg.errors import UNAVAILABLE, UNIMPLEMENTED, EngineError, InternalError, SmgError, WorkerUnavailable
from smg.workers.address import host_and_port, parse_url
from smg.workers.backoff import Backoff
from smg.workers.base import ProtocolMismatch, Worker
from smg.workers.channel import lost_error
from smg.workers.health import HealthGate, WedgeWatch
from smg.workers.http2.connection import Connection, connect
from smg.workers.sglang.answers import Progress, SequenceReceiver
from smg.workers.sglang.cards import describe, load_of, max_running_of
from smg.workers.sglang.client import SglangClient
from smg.workers.sglang.names import RequestNames
from smg.workers.sglang.requests import generate_to_sglang
from smg.workers.sglang.scoring import embed, score
from smg.workers.tokenizer_archive import save_archive
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from smg.workers.base import GenerateListener, ResultListener
    from smg.workers.http2.calls import Call
    from smg.workers.options import WorkerOptions
    from smg_proto.engine.v1 import work_pb2

_WEDGE_LOOKS = 4
_LASTING_S = 5.0
