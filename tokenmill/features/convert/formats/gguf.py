"""Writes a tokenizer as a GGUF file without tensors, which llama.cpp loads as a vocabulary."""

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from tokenmill.features.convert.formats.llama_cpp_hash import lines_for_converter
from tokenmill.features.convert.formats.pieces import Kind, pieces_of
from tokenmill.tokenizer.forms import Form, id_of, not_merged
from tokenmill.tokenizer.model import Model, characters_of

PATTERNS = {
    "cl100k": "llama-bpe",
    "gpt2": "gpt-2",
    "llama3": "llama-bpe",
    "qwen2": "qwen2",
    "starcoder": "starcoder",
}
"""What llama.cpp calls split patterns, as `tokenizer.ggml.pre`. Two of its names are left out, because their ids differ (llama.cpp
of October 2026): gpt-4o ends a word at a combining mark, unlike o200k (51 of 2,060 texts), and deepseek-llm splits some runs of
different white space in another way than deepseek (3 of 2,000)."""
_UNUSED_MAX = 2**16
"""So many ids, or as many as there are tokens, may have no token: each of them gets a text."""
_TAKES_WHOLE_TOKENS = ("llama-bpe",)
"""Where llama.cpp does what `ignore_merges` says: a pre-token that is a token becomes that token."""

MAGIC, VERSION = b"GGUF", 3
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
IDS = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
"""The names of special tokens in GGUF's keys."""


def files_of(form: Form) -> dict[str, bytes]:
    """The file tokenizer.gguf. Raises TokenizerError if llama.cpp would give other ids.

    The layout is that of ggml's docs/gguf.md, version 3: little-endian, here without tensors.
    """
    fields: dict[str, tuple[int, Any]] = {
        "general.architecture": (STRING, "llama"),
        "general.name": (STRING, f"tokenizer {form.tokenizer.digest}"),
        **_vocabulary(form),
        "tokenizer.ggml.add_bos_token": (BOOL, False),
        "tokenizer.ggml.add_eos_token": (BOOL, False),
    }
    for name, key in IDS.items():
        if (id := id_of(form, name)) is not None:
            fields[f"tokenizer.ggml.{key}_token_id"] = (UINT32, id)
    if form.chat_template is not None:
        fields["tokenizer.chat_template"] = (STRING, form.chat_template)
    return {"tokenizer.gguf": b"".join(_file(fields))}


def refuse_other_ids(form: Form) -> None:
    """Raises TokenizerError if llama.cpp would give other ids."""
    if form.tokenizer.model is None:
        pieces_of(form)
    else:
        _pattern_of(form, form.tokenizer.model)


def _vocabulary(form: Form) -> dict[str, tuple[int, Any]]:
    """The fields of the vocabulary: the type and the value of each. Raises TokenizerError if llama.cpp would give other ids."""
    return _characters(form) if form.tokenizer.model is None else _byte_level(form, form.tokenizer.model)


def _characters(form: Form) -> dict[str, tuple[int, Any]]:
    pieces, adds_mark = pieces_of(form)
    return {
        "tokenizer.ggml.model": (STRING, "llama"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, [piece.text for piece in pieces])),
        "tokenizer.ggml.scores": (ARRAY, (FLOAT32, [piece.score for piece in pieces])),
        "tokenizer.ggml.token_type": (ARRAY, (INT32, [int(piece.kind) for piece in pieces])),
        "tokenizer.ggml.add_space_prefix": (BOOL, adds_mark),
    }


def _byte_level(form: Form, model: Model) -> dict[str, tuple[int, Any]]:
    pre = _pattern_of(form, model)
    added = {added_token.id: added_token for added_token in model.added}
    texts = {id: characters_of(token) for id, token in model.tokens.items()}
    texts |= {id: one.text for id, one in added.items()}
    ids = range(max(texts) + 1)
    if len(ids) - len(texts) > (n_unused_max := max(_UNUSED_MAX, len(texts))):
        raise form.cannot(
            "a GGUF of llama.cpp",
            "model.vocab",
            f"it has a text for every id, and {len(ids) - len(texts):,} ids have no token; {n_unused_max:,} may have none",
        )

    def kind(id: int) -> int:
        if id in added:
            return Kind.CONTROL if added[id].special else Kind.USER_DEFINED
        return Kind.NORMAL if id in texts else Kind.UNUSED

    merges = [" ".join(pair) for pair in form.tokenizer.document["model"]["merges"]]
    return {
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, pre),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, [texts.get(id, f"[unused {id}]") for id in ids])),
        "tokenizer.ggml.token_type": (ARRAY, (INT32, [kind(id) for id in ids])),
        "tokenizer.ggml.merges": (ARRAY, (STRING, merges)),
    }


def _pattern_of(form: Form, model: Model) -> str:
    pre = PATTERNS.get(form.tokenizer.pattern or "")
    if pre is None:
        case_line, hash_line = lines_for_converter(form, "NAME")
        raise form.cannot(
            "a GGUF of llama.cpp",
            "pattern",
            f"it has no split like this one; it has {', '.join(PATTERNS)}",
            "Train with one of these, or add the split to llama.cpp's src/llama-vocab.cpp under a NAME, and to "
            f"get_vocab_base_pre in its conversion/base.py: {case_line} {hash_line.strip()}.",
        )
    if model.nfc or model.add_prefix_space:
        raise form.cannot("a GGUF of llama.cpp", "normalizer", "it changes no text before it splits it")
    if flagged := [added_token.text for added_token in model.added if added_token.has_flags]:
        raise form.cannot("a GGUF of llama.cpp", "added_tokens", f"it has no flags like those of {flagged[0]!r:.60}")
    takes_whole = pre in _TAKES_WHOLE_TOKENS
    if model.ignore_merges != takes_whole and (token := not_merged(model)) is not None:
        how = "as a whole" if takes_whole else "by merges alone"
        raise form.cannot("a GGUF of llama.cpp", "model.ignore_merges", f"it makes tokens such as {token!r:.60} {how}")
    return pre


def _file(fields: Mapping[str, tuple[int, Any]]) -> Iterator[bytes]:
    yield MAGIC + struct.pack("<IQQ", VERSION, 0, len(fields))
    for key, (kind, value) in fields.items():
        yield _string(key) + struct.pack("<I", kind)
        yield from _value(kind, value)


def _value(kind: int, value: Any) -> Iterator[bytes]:
    if kind == ARRAY:
        inner, values = value
        yield struct.pack("<IQ", inner, len(values))
        for one in values:
            yield from _value(inner, one)
    elif kind == STRING:
        yield _string(value)
    else:
        yield struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def _string(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content
