"""Makes log-probabilities as sinks get them, with tokens of any bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.pipelines.logprobs import TokenEntry, TokenRows
from smg.prompt.tokenizer import Tokenizer
from smg.prompt.vocabulary import Decoding, Vocabulary
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from smg_proto.common.v1 import common_pb2


def token_rows(*wanted: common_pb2.TokenLogprob) -> TokenRows:
    """Rows that a sink shows as these messages. Tokens without an id get one by their bytes."""
    spelled: dict[int, bytes] = {}

    def known(token: common_pb2.TokenLogprob | common_pb2.TopLogprob) -> int:
        data = token.bytes or token.token.encode()
        number = token.token_id or 1000 + sum(data)
        assert spelled.setdefault(number, data) == data, "two tokens with one id"
        return number

    entries = [
        TokenEntry(
            known(entry),
            work_pb2.TokenLogprobs(
                logprob=entry.logprob if entry.HasField("logprob") else None,
                top_token=[known(top) for top in entry.top_logprobs],
                top_logprob=[top.logprob for top in entry.top_logprobs],
            ),
            entry.text_offset,
        )
        for entry in wanted
    ]
    tokens = [spelled.get(number, b"").hex() for number in range(max(spelled, default=0) + 1)]
    vocabulary = Vocabulary(list(tokens), frozenset(), Decoding(bytes.fromhex))
    return TokenRows(Tokenizer(vocabulary, encode=str.encode, eos_ids=frozenset()), entries)
