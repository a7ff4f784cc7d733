"""Tells a model's calls of functions from its answer. THE table of formats: one file and one line each.

forced.py has the two that a request asks for, not a model.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.parsers.tools.base import ToolSchema
from smg.parsers.tools.cohere import CohereCalls
from smg.parsers.tools.deepseek_v3 import DeepseekV3Calls
from smg.parsers.tools.deepseek_v4 import DeepseekV4Calls
from smg.parsers.tools.deepseek_v31 import DeepseekV31Calls
from smg.parsers.tools.deepseek_v32 import DeepseekV32Calls
from smg.parsers.tools.deepseek_v41 import DeepseekV41Calls
from smg.parsers.tools.functiongemma import FunctionGemmaCalls
from smg.parsers.tools.gemma4 import Gemma4Calls
from smg.parsers.tools.glm45 import Glm45Calls
from smg.parsers.tools.granite import GraniteCalls
from smg.parsers.tools.hermes import HermesCalls
from smg.parsers.tools.json_calls import JsonCalls
from smg.parsers.tools.kimi_k2 import KimiK2Calls
from smg.parsers.tools.kimi_k3 import KimiK3Calls
from smg.parsers.tools.lfm2 import Lfm2Calls
from smg.parsers.tools.llama3_json import Llama3JsonCalls
from smg.parsers.tools.minimax_m2 import MinimaxM2Calls
from smg.parsers.tools.minimax_m3 import MinimaxM3Calls
from smg.parsers.tools.mistral import MistralCalls
from smg.parsers.tools.nemotron import NemotronCalls
from smg.parsers.tools.olmo3 import Olmo3Calls
from smg.parsers.tools.phi4_mini import Phi4MiniCalls
from smg.parsers.tools.pythonic import PythonicCalls
from smg.parsers.tools.qwen3_coder import Qwen3CoderCalls
from smg.parsers.tools.seed_oss import SeedOssCalls
from smg.parsers.tools.step3 import Step3Calls
from smg.parsers.tools.xlam import XlamCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from smg.parsers.tools.base import ToolParser

__all__ = ["CALL_ID_CHARS", "TOOL_PARSERS", "ToolSchema", "reads_schemas", "tool_parser"]

# Formats that spell the types of arguments out.
_TYPED: Mapping[str, Callable[[], ToolParser]] = MappingProxyType(
    {
        "cohere": CohereCalls,
        "deepseek_v3": DeepseekV3Calls,
        "deepseek_v31": DeepseekV31Calls,
        "functiongemma": FunctionGemmaCalls,
        "gemma4": Gemma4Calls,
        "granite": GraniteCalls,
        "hermes": HermesCalls,
        "json": JsonCalls,
        "kimi_k2": KimiK2Calls,
        "lfm2": Lfm2Calls,
        "llama3_json": Llama3JsonCalls,
        "mistral": MistralCalls,
        "nemotron": NemotronCalls,
        "olmo3": Olmo3Calls,
        "phi4_mini": Phi4MiniCalls,
        "pythonic": PythonicCalls,
        "xlam": XlamCalls,
    }
)

# Formats that write arguments as plain text; the tools' schemas tell what it means.
_UNTYPED: Mapping[str, Callable[[Sequence[ToolSchema]], ToolParser]] = MappingProxyType(
    {
        "deepseek_v32": DeepseekV32Calls,
        "deepseek_v4": DeepseekV4Calls,
        "deepseek_v41": DeepseekV41Calls,
        "glm45": Glm45Calls,
        "kimi_k3": KimiK3Calls,
        "minimax_m2": MinimaxM2Calls,
        "minimax_m3": MinimaxM3Calls,
        "qwen3_coder": Qwen3CoderCalls,
        "seed_oss": SeedOssCalls,
        "step3": Step3Calls,
    }
)

# Length of the ids that models of a format know: their templates and tokenizers take no others.
CALL_ID_CHARS: Mapping[str, int] = MappingProxyType({"mistral": 9})

TOOL_PARSERS: tuple[str, ...] = tuple(sorted((*_TYPED, *_UNTYPED)))


def reads_schemas(name: str) -> bool:
    """Whether a format's parser looks at the tools' schemas."""
    return name in _UNTYPED


def tool_parser(name: str, tools: Sequence[ToolSchema] = ()) -> ToolParser:
    """A fresh parser, for one choice.

    Args:
        name: one of TOOL_PARSERS.
        tools: the functions of the request. Needed for the types of arguments in formats that write plain text.

    Raises:
        ValueError: no such format.
    """
    if name in _UNTYPED:
        return _UNTYPED[name](tools)
    if name in _TYPED:
        return _TYPED[name]()
    msg = f"unknown tool call parser {name!r}; known: {', '.join(sorted(TOOL_PARSERS))}"
    raise ValueError(msg)
