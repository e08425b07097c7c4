"""Oddities of a well-formed tokenizer: it works with them, but they may surprise a user."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tokenmill.artifacts.golden_texts import HARD, PANEL
from tokenmill.tokenizer.formats.tiktoken_file import last_merge
from tokenmill.tokenizer.model import Merge, Model, encoder_of

_N_SHOWN = 10
_SHOWN_CHARACTERS_MAX = 40


def of_document(document: Mapping[str, Any], tokens: Mapping[int, bytes]) -> list[dict[str, Any]]:
    """The oddities of any tokenizer.json. Each entry has `what`, the number of cases `n`, and some `examples`."""
    added = document["added_tokens"]
    specials = [token["content"] for token in added if token["special"]]
    oddities = [
        entry(
            "special tokens that look like text",
            [
                text if text.strip() else repr(text)
                for text in specials
                if not text.strip() or text.replace(" ", "").isalnum()
            ],
        ),
        entry(
            "added tokens that are not special: found in text",
            [token["content"] for token in added if not token["special"]],
        ),
        entry("ids with holes", holes(tokens)),
        entry("tokens with the bytes of another", twins(tokens)),
    ]
    for section in ("truncation", "padding", "post_processor"):
        if document.get(section) is not None:
            kind = document[section].get("type")
            if kind != "ByteLevel":
                oddities.append(
                    {"what": f"{section} is not applied when encoding", "n": 1, "examples": [kind] if kind else []}
                )
    if document.get("normalizer") not in (None, {"type": "Sequence", "normalizers": []}):
        oddities.append(
            {
                "what": "text is normalized: decoding may give another text back",
                "n": 1,
                "examples": [document["normalizer"]["type"]],
            }
        )
    return [oddity for oddity in oddities if oddity["n"]]


def of_model(model: Model) -> list[dict[str, Any]]:
    """The oddities of a byte-level model: unreachable tokens and merges, and bytes without a token."""
    missing = sorted(set(range(256)) - {token[0] for token in model.tokens.values() if len(token) == 1})
    unreachable, unusable = dead(model)
    n_pairs = len({(merge.left, merge.right) for merge in model.merges})
    oddities = [
        entry("bytes without a token: text with them is an error", [f"0x{byte:02x}" for byte in missing]),
        entry("tokens that no text leads to", unreachable),
        entry("merges that no text uses", unusable),
        entry("merges of the same pair", range(len(model.merges) - n_pairs)),
    ]
    if model.add_prefix_space:
        oddities.append({"what": "text gets a space in front, which decoding gives back", "n": 1, "examples": []})
    return [oddity for oddity in oddities if oddity["n"]]


def unmatched(regex: str) -> list[str]:
    """Pieces of text that a regex does not match, which tiktoken drops; the first ones of a sample, and as far as the tokenizers
    library reads the regex."""
    import tokenizers

    try:
        only_matches = tokenizers.pre_tokenizers.Split(tokenizers.Regex(regex), behavior="removed", invert=True)
    except Exception:  # noqa: BLE001 - the library raises nothing narrower for a regex that Oniguruma does not read
        return []
    characters = "".join(chr(code) for code in range(0x10000) if unicodedata.category(chr(code)) not in ("Cn", "Cs"))
    pieces: dict[str, None] = {}
    for text in (*PANEL.values(), *HARD.values(), characters):
        end = 0
        for start, stop in [*(span for _, span in only_matches.pre_tokenize_str(text)), (len(text), len(text))]:
            if end < start:
                pieces[repr(text[end:start])[:_SHOWN_CHARACTERS_MAX]] = None
            end = stop
    return [*pieces]


def entry(what: str, examples: Iterable[Any]) -> dict[str, Any]:
    """An oddity with the number of all its cases and the first few of them."""
    listed = list(examples)
    return {"what": what, "n": len(listed), "examples": [str(one) for one in listed[:_N_SHOWN]]}


def holes(tokens: Mapping[int, bytes]) -> list[str]:
    """Ranges of unused ids below the largest id."""
    ids = [-1, *sorted(tokens)]
    gaps = [(one + 1, other - 1) for one, other in pairwise(ids) if other > one + 1]
    return [str(first) if first == last else f"{first}-{last}" for first, last in gaps]


def twins(tokens: Mapping[int, bytes]) -> list[str]:
    """Tokens with equal bytes, which decoding cannot tell apart."""
    n_of = Counter(tokens.values())
    return [f"{id}: {token.decode(errors='replace')!r}" for id, token in tokens.items() if n_of[token] > 1]


def dead(model: Model) -> tuple[list[str], list[str]]:
    """Tokens that no text leads to, and merges that no text uses.

    A merge across a token's edge would prevent the token, so inside any text a token is built exactly as from its bytes alone.
    A token is therefore dead if merging its bytes does not give it, and a merge is dead if it is not the last one on the way to
    its token. With `ignore_merges`, a token is also reached as a whole pre-token.
    """
    rules = {(merge.left, merge.right): merge for merge in model.merges}
    token_of = model.tokens | {
        added_token.id: added_token.text.encode()
        for added_token in model.added
        if added_token.in_vocab and not added_token.special
    }
    ids = {token: id for id, token in token_of.items()}
    merged = _whole(replace(model, steps=(), ignore_merges=False), token_of)
    uncertain = [id for id, token in token_of.items() if id not in merged and len(token) > 1]
    last = {id: last_merge(token_of[id], rules, ids) for id in (*uncertain, *_made_in_ways(rules.values()))}
    merged |= {id for id in uncertain if last[id] is not None}
    unused = [
        f"{token_of.get(rule.left, b'?').decode(errors='replace')!r} {token_of.get(rule.right, b'?').decode(errors='replace')!r}"
        for rule in rules.values()
        if rule.token not in merged or last.get(rule.token, rule) != rule
    ]
    reached = merged | (_whole(model, token_of) if model.ignore_merges else set())
    unreached = [id for id, token in model.tokens.items() if id not in reached and len(token) > 1]
    return [f"{id}: {token_of[id].decode(errors='replace')!r}" for id in unreached], unused


def _made_in_ways(rules: Iterable[Merge]) -> list[int]:
    """The tokens that more than one merge makes."""
    return [token for token, n in Counter(rule.token for rule in rules).items() if n > 1]


def _whole(model: Model, token_of: Mapping[int, bytes]) -> set[int]:
    """The ids of the tokens whose bytes alone encode to that one id. Tokens that are not UTF-8, or that contain a byte without
    a token, are left out."""
    known = {token[0] for token in model.tokens.values() if len(token) == 1}
    texts = {
        id: text for id, token in token_of.items() if known.issuperset(token) and (text := _text(token)) is not None
    }
    found = encoder_of(model).encode_batch(pa.array(texts.values(), pa.large_string()), 1).to_pylist()
    return {id for id, given in zip(texts, found, strict=True) if given == [id]}


def _text(token: bytes) -> str | None:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None
