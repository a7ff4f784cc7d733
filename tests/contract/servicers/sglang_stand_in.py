"""Stands in for SGLang's Engine in one process: its calls, its outputs and its habits, over a distribution without weights.

What it takes over from SGLang 0.5.23: validation by ValueError, forms that do not compile by an abort with a status,
outputs that hold everything so far, input log-probabilities without a number for the first, one token chosen by seed and
absolute position, penalties that know output of its own alone, one wake-up per request and step, aborts by cancelling,
a cache that is flushed only while nothing runs, a context of which the scheduler keeps six tokens.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from zlib import crc32

from servicers.echo.distribution import Distribution, context_key, context_key_of
from servicers.echo.model import load_model
from servicers.echo.prefix_cache import BLOCK_TOKENS, PrefixCache, prompt_blocks
from servicers.token_bytes import ids_to_bytes

STEP_S = 0.002
MAX_RUNNING = 256
CACHE_TOKENS = 1 << 20
CANDIDATES = 32
KEPT_OF_CONTEXT = 6
EMBEDDING_SIZE = 16
FORMS = ("json_schema", "regex", "ebnf", "structural_tag")


@dataclass(eq=False)
class Request:
    """A request in the scheduler."""

    rid: str
    ids: list[int]
    params: dict
    is_streamed: bool
    wants_logprobs: bool
    top: int
    asked: list[int]
    start: int
    blocks: list[int]
    cached: int = 0
    output: list[int] = field(default_factory=list)
    meta: dict = field(default_factory=dict)
    key: int = 0
    outputs: list[dict] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_finished: bool = False


class StandInPackage:
    """In place of what servicers/sglang/engine.py imports."""

    version = "0.5.23"

    def __init__(self, *, is_generation: bool = True, fails_to_start: str = "") -> None:
        self.is_generation = is_generation
        self.fails_to_start = fails_to_start
        self.engines: list[StandInEngine] = []

    def make_engine(self, arguments):
        if self.fails_to_start:
            raise RuntimeError(self.fails_to_start)
        engine = StandInEngine(arguments, is_generation=self.is_generation)
        self.engines.append(engine)
        return engine

    def embedding_request(self, *, input_ids, rid, lora_path):
        return SimpleNamespace(input_ids=input_ids, rid=rid, lora_path=lora_path)

    def profile_request(self, *, output_dir):
        return SimpleNamespace(output_dir=output_dir)


class StandInEngine:
    def __init__(self, arguments, *, is_generation: bool) -> None:
        model = load_model(arguments["model_path"], None, arguments.get("context_length"))
        context = model.context_length or 8192
        self.arguments = arguments
        self.tokenizer_manager = self
        self.model_config = SimpleNamespace(
            vocab_size=model.vocab_size,
            hidden_size=EMBEDDING_SIZE,
            context_len=context,
            is_generation=is_generation,
            dtype="torch.bfloat16",
            hf_config=SimpleNamespace(architectures=["StandInForCausalLM"], model_type="stand_in"),
            hf_eos_token_id=set(model.eos_ids),
        )
        self.max_req_input_len = context - KEPT_OF_CONTEXT
        self.loras: dict[str, str] = {}
        self.lora_registry = SimpleNamespace(get_all_adapters=lambda: dict(self.loras))
        self.calls: list[dict] = []
        self.profiles: list[str | None] = []
        self.is_shut_down = False
        self.most_in_a_step = 0
        self._distribution = Distribution(model.vocab_size)
        self._cache = PrefixCache(CACHE_TOKENS)
        self._requests: dict[str, Request] = {}
        self._steps = 0
        self._scheduler: asyncio.Task | None = None

    # What sglang.Engine has.

    async def async_generate(self, *, input_ids, sampling_params, rid, stream=False, **options):
        self.calls.append({"input_ids": input_ids, "sampling_params": sampling_params, "rid": rid, **options})
        if input_ids and isinstance(input_ids[0], list):
            each = [
                {name: value[index] if isinstance(value, list) else value for name, value in options.items()}
                for index in range(len(input_ids))
            ]
            whole = [
                self._whole(ids, sampling_params, name, **rest)
                for ids, name, rest in zip(input_ids, rid, each, strict=True)
            ]
            return list(await asyncio.gather(*whole))
        if stream:
            return self._stream(input_ids, sampling_params, rid, is_streamed=True, **options)
        return await self._whole(input_ids, sampling_params, rid, **options)

    async def async_load_lora_adapter(self, lora_name, lora_path):
        if not self.arguments.get("enable_lora"):
            return SimpleNamespace(success=False, error_message="LoRA is not enabled.")
        self.loras[lora_name] = lora_path
        return SimpleNamespace(success=True, error_message=None)

    async def async_unload_lora_adapter(self, lora_name):
        is_there = self.loras.pop(lora_name, None) is not None
        return SimpleNamespace(success=is_there, error_message=None if is_there else "no such adapter")

    def shutdown(self) -> None:
        self.is_shut_down = True

    # What its TokenizerManager has.

    async def generate_request(self, obj, request):
        if self.model_config.is_generation:
            raise ValueError("This model does not appear to be an embedding model by default.")
        await asyncio.sleep(0)
        key = context_key(ids_to_bytes(obj.input_ids))
        values = [crc32(bytes([place]), key) / 2**31 - 1 for place in range(EMBEDDING_SIZE)]
        yield {"embedding": values, "meta_info": {"id": obj.rid, "prompt_tokens": len(obj.input_ids)}}

    async def flush_cache(self):
        if self._requests:
            return SimpleNamespace(success=False)
        self._cache.flush(())
        return SimpleNamespace(success=True)

    async def get_loads(self):
        held = sum(len(each.ids) + len(each.output) for each in self._requests.values())
        return [
            SimpleNamespace(
                timestamp=self._steps,
                num_waiting_uncached_tokens=0,
                num_used_tokens=self._cache.used_tokens + held,
                max_total_num_tokens=CACHE_TOKENS,
                max_running_requests=MAX_RUNNING,
                gen_throughput=len(self._requests) / STEP_S,
            )
        ]

    async def start_profile(self, req):
        if self.profiles and self.profiles[-1] is not None:
            raise RuntimeError("Profiling is already in progress. Call /stop_profile first.")
        self.profiles.append(req.output_dir or "/tmp")

    async def stop_profile(self):
        if not self.profiles or self.profiles[-1] is None:
            raise RuntimeError("Profiling is not in progress. Call /start_profile first.")
        self.profiles.append(None)

    async def _whole(self, ids, params, rid, **options):
        outputs = self._stream(ids, params, rid, is_streamed=False, **options)
        try:
            return await anext(outputs)
        finally:
            await outputs.aclose()

    async def _stream(self, ids, params, rid, *, is_streamed, **options):
        if rid in self._requests:
            raise ValueError(f"Duplicate request ID detected: {rid}")
        self._validate(ids, params, options)
        request = Request(
            rid,
            ids,
            params,
            is_streamed,
            options.get("return_logprob", False),
            options.get("top_logprobs_num") or 0,
            options.get("token_ids_logprob") or [],
            options.get("logprob_start_len", -1),
            prompt_blocks(ids_to_bytes(ids), options.get("lora_path") or ""),
        )
        self._requests[rid] = request
        if self._scheduler is None or self._scheduler.done():
            self._scheduler = asyncio.get_running_loop().create_task(self._run())
        try:
            while not request.is_finished or request.outputs:
                await request.changed.wait()
                request.changed.clear()
                output = request.outputs[-1]
                request.outputs = []
                yield output
        finally:
            self._requests.pop(rid, None)

    def _validate(self, ids, params, options) -> None:
        context = self.model_config.context_len
        most = params.get("max_new_tokens")
        if len(ids) >= context:
            raise ValueError(f"The input ({len(ids)} tokens) is longer than the model's context length")
        if most is not None and most + len(ids) > context:
            raise ValueError("Requested token count exceeds the model's maximum context length")
        if most is not None and not 0 <= params.get("min_new_tokens", 0) <= most:
            raise ValueError("min_new_tokens must be in [0, max_new_tokens]")
        if options.get("lora_path") and options["lora_path"] not in self.loras:
            raise ValueError("Got LoRA adapter that has never been loaded")

    async def _run(self) -> None:
        """The scheduler: a step at a time, and all requests of a step are woken together."""
        while self._requests:
            await asyncio.sleep(STEP_S)
            self._steps += 1
            running = [each for each in self._requests.values() if not each.is_finished]
            self.most_in_a_step = max(self.most_in_a_step, len(running))
            for request in running:
                self._step(request)

    def _step(self, request: Request) -> None:
        reason = self._prefill(request) if not request.meta else self._decode(request)
        request.is_finished = reason is not None
        interval = request.params.get("stream_interval") or 1
        if reason is None and (not request.is_streamed or len(request.output) % interval):
            return
        request.meta["finish_reason"] = reason
        request.meta["completion_tokens"] = len(request.output)
        if reason is not None:
            self._requests.pop(request.rid, None)
        output_ids = list(request.output) if reason else request.output
        request.outputs.append({"text": None, "output_ids": output_ids, "meta_info": dict(request.meta)})
        request.changed.set()

    def _prefill(self, request: Request):
        if len(request.ids) >= self.max_req_input_len:
            request.meta["id"] = request.rid
            return _abort("Input length exceeds the maximum allowed length", 400)
        request.cached = self._cache.cached_tokens(request.blocks)
        if request.start >= 0:
            # What is to have a log-probability is computed.
            request.cached = min(request.cached, request.start // BLOCK_TOKENS * BLOCK_TOKENS)
        self._cache.add(request.blocks)
        request.key = context_key(ids_to_bytes(request.ids))
        request.meta = {
            "id": request.rid,
            "prompt_tokens": len(request.ids),
            "cached_tokens": request.cached,
            "reasoning_tokens": 0,
        }
        fault = _form_fault(request.params)
        if fault:
            return _abort(f"Invalid grammar request: {fault}", 400)
        if request.wants_logprobs:
            self._put_input_rows(request)
        if request.params.get("max_new_tokens") == 0:
            if request.asked:
                row = self._distribution.row(request.key)
                request.meta["output_token_ids_logprobs"].append(_entries(row, request.asked))
            return {"type": "length", "length": 0}
        return self._decode(request)

    def _decode(self, request: Request):
        params, output = request.params, request.output
        row = self._distribution.row(request.key)
        stops = set(params.get("stop_token_ids") or ())
        if not params.get("ignore_eos"):
            stops |= self.model_config.hf_eos_token_id
        barred = stops if len(output) < params.get("min_new_tokens", 0) else set()
        token = _choose(row, params, output, len(request.ids) + len(output), barred)
        output.append(token)
        request.key = context_key_of((token,), request.key)
        if request.wants_logprobs:
            request.meta["output_token_logprobs"].append((row.logprob(token), token, None))
            if request.top:
                request.meta["output_top_logprobs"].append(_entries(row, row.top(request.top)))
            if request.asked:
                request.meta["output_token_ids_logprobs"].append(_entries(row, request.asked))
        if token in stops:
            return {"type": "stop", "matched": token}
        if len(output) >= params["max_new_tokens"]:
            return {"type": "length", "length": len(output)}
        return None

    def _put_input_rows(self, request: Request) -> None:
        meta, ids = request.meta, request.ids
        chosen, top = [], []
        if request.start >= 0:
            key = context_key(ids_to_bytes(ids[: request.start]))
            for position in range(request.start, len(ids)):
                row = self._distribution.row(key)
                is_first = position == request.start
                chosen.append((None if is_first else row.logprob(ids[position]), ids[position], None))
                top.append(None if is_first else _entries(row, row.top(request.top)))
                key = context_key_of((ids[position],), key)
        meta["input_token_logprobs"] = chosen
        meta["output_token_logprobs"] = []
        if request.top:
            meta["input_top_logprobs"], meta["output_top_logprobs"] = top, []
        if request.asked:
            meta["output_token_ids_logprobs"] = []


def _choose(row, params, output, position, barred) -> int:
    """The next token: among the likeliest, those with a bias and those said before."""
    counts = Counter(output)
    bias = {int(token): value for token, value in (params.get("logit_bias") or {}).items()}
    scores = {}
    for token in dict.fromkeys([*row.top(CANDIDATES), *bias, *counts]):
        if token in barred:
            continue
        score = row.logprob(token) + bias.get(token, 0.0)
        if token in counts:
            score -= counts[token] * params.get("frequency_penalty", 0.0) + params.get(
                "presence_penalty", 0.0
            )
            factor = params.get("repetition_penalty", 1.0)
            score = score * factor if score < 0 else score / factor
        scores[token] = score
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    temperature = params.get("temperature", 1.0)
    if temperature == 0:
        return ranked[0]
    top_k = params.get("top_k", -1)
    ranked = ranked[: top_k if top_k > 0 else None]
    floor = math.log(params["min_p"]) + scores[ranked[0]] if params.get("min_p") else -math.inf
    seed = params["sampling_seed"]
    return max(
        (token for token in ranked if scores[token] >= floor),
        key=lambda token: scores[token] / temperature + _gumbel(seed, position, token),
    )


def _gumbel(seed: int, position: int, token: int) -> float:
    drawn = crc32(f"{seed}/{position}/{token}".encode())
    return -math.log(-math.log((drawn + 0.5) / 2**32))


def _entries(row, tokens):
    return [(row.logprob(token), token, None) for token in tokens]


def _form_fault(params) -> str:
    kind = next((name for name in FORMS if params.get(name)), None)
    if kind in ("json_schema", "structural_tag"):
        try:
            json.loads(params[kind])
        except ValueError as error:
            return str(error)
    if kind == "regex" and params[kind].count("(") != params[kind].count(")"):
        return "missing closing parenthesis"
    return ""


def _abort(message: str, status: int):
    return {"type": "abort", "message": message, "status_code": status, "err_type": "BadRequestError"}
