"""Says of how many conversations a chat template refuses, by their shape and the reason."""

import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from tokenmill.chat.answers import REASONING_KEYS, cut_thought
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.corpus.reader import Batch
from tokenmill.errors import ChatError, CorpusError, UnitTimeoutError

_N_TRIED_MAX = 2000
_N_AT_ONCE = 32
_SECONDS_MAX = 5.0
_N_LINES_MAX = 8
_REASON_CHARACTERS_MAX = 100
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d,]*")


def refused_in(chat: ChatEncoder, batch: Batch, shard: str, error: ChatError) -> CorpusError:
    """The error for a conversation of a batch that the chat template refuses, with what else it refuses in the batch."""
    where, what, fix = error.inside(f"{shard}, row {batch.rows()[error.index].as_py()}")
    return CorpusError(where, [*what, *refusals(chat, batch, error.index)], fix, code=error.code)


def refusals(chat: ChatEncoder, batch: Batch, first: int) -> list[str]:
    """Lines for the error of a refused conversation, which is number `first` of the batch: how many conversations from it on are
    refused, by shape and reason. Empty if it is the only one. Tries up to 2,000, and for about five seconds."""
    assert batch.messages is not None
    messages = batch.messages.slice(first, _N_TRIED_MAX)
    end_s = time.monotonic() + _SECONDS_MAX
    reasons: dict[int, str] = {}
    n_tried = 0
    while n_tried < len(messages) and time.monotonic() < end_s:
        part = messages.slice(n_tried, _N_AT_ONCE)
        try:
            chat.encode_batch(part)
            n_tried += len(part)
        except ChatError as error:
            n_tried += error.index + 1
            reasons[n_tried - 1] = _without_values(str(error))
        except UnitTimeoutError:
            break
    if len(reasons) < 2:
        return []
    shapes = [_shape(text) for text in messages.slice(0, n_tried).to_pylist()]
    n_of, rows = Counter(shapes), batch.rows()
    refused = Counter((shapes[i], reason) for i, reason in reasons.items())
    lines = [f"Of the {n_tried:,} conversations from there on that were tried, {len(reasons):,} are refused:"]
    for (shape, reason), n in refused.most_common(_N_LINES_MAX):
        row = next(rows[first + i].as_py() for i in reasons if (shapes[i], reasons[i]) == (shape, reason))
        lines.append(f"  {n:,} of {n_of[shape]:,} with {shape}, the first in row {row}: {reason}")
    return lines


def _without_values(reason: str) -> str:
    """A reason without quoted texts and numbers, which differ from row to row.

    >>> _without_values("message 1 (assistant): it begins inside a token, at character 62")
    'message … (assistant): it begins inside a token, at character …'
    """
    found = _VALUES.sub("…", reason.split("\n", 1)[0])
    return found if len(found) <= _REASON_CHARACTERS_MAX else found[:_REASON_CHARACTERS_MAX] + "…"


def _shape(text: str) -> str:
    """The shape of a conversation, given as canonical JSON.

    >>> _shape('{"messages":[{"role":"system","content":"b"},{"role":"user","content":"a"}],"tools":[{}]}')
    'one turn, a system message, tools'
    """
    conversation = msgspec.json.decode(text)
    messages: list[Mapping[str, Any]] = conversation["messages"]
    n_answers = sum(message.get("role") == "assistant" for message in messages)
    has = {
        "a system message": any(message.get("role") in ("system", "developer") for message in messages),
        "tools": bool(conversation.get("tools")) or any(message.get("tool_calls") for message in messages),
        "reasoning": any(
            any(message.get(key) for key in REASONING_KEYS) or cut_thought(str(message.get("content")))[1] != ""
            for message in messages
        ),
    }
    return ", ".join(["many turns" if n_answers > 1 else "one turn", *(name for name, there in has.items() if there)])
