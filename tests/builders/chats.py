"""Tokenizers and conversations that the tests of chat templates share, and transformers as the oracle."""

import json
import random
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import transformers
from packaging.version import Version
from transformers import PreTrainedTokenizerFast

from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.chat.chat_encoder import ChatEncoder, EncodedChat
from tokenmill.chat.named import template_text
from tokenmill.chat.rendering import ChatSettings, MaskRule

needs_new_transformers = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.23"), reason="follows transformers 5.23, and earlier ones differ"
)

LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"  # a template that never ends
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
SPECIAL = [
    *("<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>"),
    *("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    *("<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
]
NOT_SPECIAL = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
WORDS = [
    "the",
    "cat",
    " sat",
    "on\n",
    "\r\n",
    "naïve",
    "東京",
    "🙂",
    "👩‍👩‍👧",
    "  ",
    "<b>",
    "{{ bos_token }}",
    "x" * 9,
    "café",
    "\t",
    "12345",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather – of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def _changed(document: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {**document, **parts}


def _with_flags(document: dict[str, Any], **flags: bool) -> dict[str, Any]:
    added = [{**one, **flags} if one["special"] else one for one in document["added_tokens"]]
    return {**document, "added_tokens": added}


def _with_turns(document: dict[str, Any]) -> dict[str, Any]:
    """The marks of turns and calls are added tokens that are not special, as DeepSeek-R1's distilled models have them."""
    added = [{**one, "special": one["content"] in SPECIAL[:3]} for one in document["added_tokens"]]
    return {**document, "added_tokens": added}


@cache
def _trained() -> dict[str, Any]:
    """tokenizer.json of a byte-level tokenizer with every special token of the templates."""
    counter = Counter(pattern="gpt2")
    counter.update(
        ["the cat sat on the mat and the dog sat on the log, <|im_ <b> naïve café 東京 🙂🙂 \n\n \r\n {{ bos }}"] * 3
    )
    tokenizer = train_vocab(counter, vocab_size=400, pattern="gpt2", special_tokens=SPECIAL)
    document = json.loads(json.dumps(tokenizer.document))
    n_tokens = tokenizer.vocab_size
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    document["added_tokens"] += [{"id": n_tokens + i, "content": text, **flags} for i, text in enumerate(NOT_SPECIAL)]
    return document


def _like_sentencepiece(normalizer: Any, pre_tokenizer: Any) -> dict[str, Any]:
    """tokenizer.json in the manner of SentencePiece: blanks become ▁, and characters without a token become bytes."""
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("c", "a"), ("ca", "t"), ("▁", "cat"), ("o", "n"), ("▁", "s")]
    texts = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127)), "é", "\n"]
    texts += [left + right for left, right in merges]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": text, **flags} for i, text in enumerate(SPECIAL)],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(texts)},
            "merges": [list(pair) for pair in merges],
        },
    }


_PREPEND = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
DOCUMENTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "plain": _trained,
    "nfc": lambda: _changed(_trained(), normalizer={"type": "NFC"}),
    "rstrip": lambda: _with_flags(_trained(), rstrip=True),
    "lstrip": lambda: _with_flags(_changed(_trained(), normalizer={"type": "NFC"}), lstrip=True),
    "late": lambda: _with_flags(_trained(), normalized=True),
    "prefix space": lambda: _changed(
        _trained(),
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
    ),
    "turns not special": lambda: _with_turns(_trained()),
    "lowercase": lambda: _changed(_trained(), normalizer={"type": "Lowercase"}),
    "prepend": lambda: _like_sentencepiece(_PREPEND, None),
    "metaspace": lambda: _like_sentencepiece(None, _METASPACE),
    "prepend, turns not special": lambda: _with_turns(_like_sentencepiece(_PREPEND, None)),
}
"""tokenizer.json by what is special about it; the last four are run by the tokenizers library."""


@cache
def tokenizer(name: str) -> Tokenizer:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(DOCUMENTS[name]()), encoding="utf-8")
        return Tokenizer.load(path)


@cache
def peer(name: str) -> PreTrainedTokenizerFast:
    """transformers' tokenizer of the same file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(DOCUMENTS[name]()), encoding="utf-8")
        return PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<s>", eos_token="</s>")


def encoder(
    name: str = "plain", template: str = "chatml", mask: MaskRule = "assistant", **variables: object
) -> ChatEncoder:
    """An encoder with a named template, or with a text that has a brace."""
    text = template if "{" in template else template_text(template)
    return ChatEncoder(tokenizer(name), ChatSettings(text, mask, {**VARIABLES, **variables}), "chat.jinja")


def canonical(messages: list[dict[str, Any]], tools: list[Any] | None = None) -> str:
    conversation: dict[str, Any] = {"messages": messages}
    return msgspec.json.encode(conversation if tools is None else {**conversation, "tools": tools}).decode()


def encoded(one: ChatEncoder, *conversations: list[dict[str, Any]]) -> EncodedChat:
    return one.encode_batch(pa.array([canonical(messages) for messages in conversations], pa.large_string()))


def told(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def a_conversation(chance: random.Random, tools: bool, thinking: bool) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """Some turns, with a message of the system, calls of tools or thinking now and then."""

    def text() -> str:
        return "".join(chance.choices(WORDS, k=chance.choice([0, 1, 2, 5, 20])))

    messages = [told("system", text())] if chance.random() < 0.4 else []
    for _ in range(chance.choice([1, 1, 2, 4])):
        messages.append(told("user", text()))
        if tools and chance.random() < 0.5:
            call = {"name": "weather", "arguments": {"city": text()} if chance.random() < 0.5 else '{"city": "東京"}'}
            calls = [{"id": "123456789", "type": "function", "function": call}]
            messages.append({"role": "assistant", "tool_calls": calls})
            messages.append(told("tool", text(), tool_call_id="123456789"))
        answer = told("assistant", text())
        if thinking and chance.random() < 0.5:
            answer = chance.choice(
                [
                    told("assistant", f"{text()} cat", reasoning_content=text()),
                    told("assistant", f"<think>\n{text()}</think>{text()} cat"),
                ]
            )
        messages.append(answer)
    return messages, TOOLS if tools and chance.random() < 0.7 else None


def without_tags(name: str) -> str:
    """The text of a named template without its generation tags."""
    return re.sub(r"\{%-? (end)?generation -?%\}", "", template_text(name))


def learned(one: ChatEncoder, messages: list[dict[str, Any]], name: str = "plain") -> str:
    """The text of the tokens of a conversation that are trained. `name`: the encoder's tokenizer."""
    found = encoded(one, messages)
    ids, mask = found.input_ids[0].as_py(), found.loss_mask[0].as_py()
    return tokenizer(name).decode([id for id, flag in zip(ids, mask, strict=True) if flag])


def bare(text: str) -> str:
    """The text without white space and empty thinking, of which generation tags may enclose more or less."""
    return re.sub(r"<think>\s*</think>|\s", "", text)


TURNS = [told("user", "one"), told("assistant", "cat"), told("user", "two"), told("assistant", "sat")]
