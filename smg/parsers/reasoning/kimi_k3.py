"""<|open|>think<|sep|>…<|close|>think<|sep|>: Kimi-K3, whose answer stands between tags of the same kind.

Source: SGLang's parser of Kimi-K3. The prompt opens the reasoning while the model thinks.
"""

from __future__ import annotations

from smg.parsers.reasoning.base import ReasoningFormat

KIMI_K3 = ReasoningFormat(
    opening="<|open|>think<|sep|>",
    closing="<|close|>think<|sep|>",
    reasons_first=True,
    wrappers=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
)
