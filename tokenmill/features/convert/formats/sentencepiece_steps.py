"""The steps of tokenizer.json that do to a text what sentencepiece does.

Added tokens of tokenizer.json cut a text before the normalizer runs, which then runs on each part. sentencepiece normalizes
the whole text once. So user-defined symbols are no added tokens here, but entries of the model that a pre_tokenizer finds.
The rules are those that sentencepiece 0.2.3 showed: interop/test_sentencepiece.py compares the ids.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.features.convert.formats.pieces import MARK, Kind, Normalization, TokenPiece, document_of

_FIX = "Use the tokenizer.json that is published with the same model, or train the model without this setting."
_NONCHARACTERS = range(0xFDD0, 0xFDF0)
_SYMBOL_SCORE = 0.1
"""The score of each byte of a user-defined symbol of a Unigram model behind the first one, as measured in sentencepiece 0.2.3."""


def document_as_sentencepiece(
    pieces: list[TokenPiece], is_unigram: bool, normalization: Normalization, place: str
) -> dict[str, Any]:
    """The tokenizer.json with the ids of sentencepiece. Raises TokenizerError, naming the setting or piece, where no
    tokenizer.json gives them."""
    symbols = [piece.text for piece in pieces if piece.kind is Kind.USER_DEFINED]
    _check_pieces(pieces, is_unigram, normalization, place)
    document = document_of(pieces, is_unigram, normalization, place)
    _check_ties(document["model"].get("merges", []), pieces, place)
    if is_unigram:
        document["model"]["vocab"] = _scored(pieces)
        found = [*_usable(pieces), *symbols]
        hidden = [piece.text for piece in pieces if piece.kind not in (Kind.NORMAL, Kind.USER_DEFINED)]
        steps = _hide(hidden, found, document, place)
    elif symbols and not _are_added_tokens(pieces, symbols, normalization):
        document["model"]["ignore_merges"] = True
        hidden = [piece.text for piece in pieces if piece.kind is not Kind.USER_DEFINED]
        hidden = _not_merged(document["model"], hidden, pieces)
        cuts = _hide(hidden, _usable(pieces), document, place)
        steps = [_split("|".join(map(_escaped, _findable(symbols))), "Isolated"), *cuts]
    else:
        for token in document["added_tokens"]:
            token["normalized"] = not token["special"] and any(MARK in symbol for symbol in symbols)
        never_found = {symbol for symbol in symbols if " " in symbol}
        document["added_tokens"] = [
            added_token for added_token in document["added_tokens"] if added_token["content"] not in never_found
        ]
        return document
    document["added_tokens"] = [added_token for added_token in document["added_tokens"] if added_token["special"]]
    if steps:
        document["pre_tokenizer"] = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    return document


def _are_added_tokens(pieces: list[TokenPiece], symbols: list[str], normalization: Normalization) -> bool:
    """Whether symbols may be added tokens: nothing is put in front of a text or taken off its ends, and no special token, which
    tokenizers finds first, overlaps one."""
    if normalization.adds_mark or normalization.joins_spaces:
        return False
    special = [piece.text for piece in pieces if piece.kind in (Kind.CONTROL, Kind.UNKNOWN)]
    return not any(_overlap(one, symbol) for one in special for symbol in symbols)


def _overlap(text: str, other: str) -> bool:
    if text in other or other in text:
        return True
    lengths = range(1, min(len(text), len(other)))
    return any(text[-n:] == other[:n] or other[-n:] == text[:n] for n in lengths)


def _check_pieces(pieces: list[TokenPiece], is_unigram: bool, normalization: Normalization, place: str) -> None:
    """Raises TokenizerError for a piece that sentencepiece treats in a way that no tokenizer.json can."""
    parts = {piece.text for piece in pieces if piece.kind in (Kind.NORMAL, Kind.UNUSED)}
    if is_unigram:
        _check_no_overlap([piece.text for piece in pieces if piece.kind is Kind.USER_DEFINED], place)
    for id, piece in enumerate(pieces):
        text = piece.text
        if piece.kind is Kind.USER_DEFINED and normalization.joins_spaces and "  " in text:
            raise TokenizerError(
                f"{place}: piece {id}",
                f"the user-defined symbol {text!r:.60} has several spaces in a row; remove_extra_whitespaces leaves them in it, "
                "which tokenizer.json cannot.",
                _FIX,
            )
        if piece.kind in (Kind.CONTROL, Kind.UNKNOWN) and len(text) == 1:
            raise TokenizerError(
                f"{place}: piece {id}",
                f"{text!r} is a {piece.kind.name.lower()} piece of one character; in tokenizer.json it would be found in text.",
                _FIX,
            )
        if piece.kind is Kind.UNUSED and not is_unigram:
            splits = ((text[:i], text[i:]) for i in range(1, len(text)))
            if len(text) == 1 or any(left in parts and right in parts for left, right in splits):
                raise TokenizerError(
                    f"{place}: piece {id}",
                    f"{text!r:.60} is unused; sentencepiece makes it and takes it apart again, which tokenizer.json cannot.",
                    _FIX,
                )


def _usable(pieces: list[TokenPiece]) -> list[str]:
    return [piece.text for piece in pieces if piece.kind is Kind.NORMAL]


def _check_no_overlap(symbols: list[str], place: str) -> None:
    """Raises TokenizerError if the end of a symbol is the beginning of one. Where they overlap in a text of a Unigram model, the
    sums of scores are equal, and sentencepiece takes the one that rounds up in 32 bits."""
    beginnings = {symbol[:n] for symbol in symbols for n in range(1, len(symbol))}
    for symbol in symbols:
        for n in range(1, len(symbol)):
            if symbol[-n:] in beginnings:
                raise TokenizerError(
                    place,
                    f"the user-defined symbol {symbol!r:.60} ends as one begins; where they overlap in a text, sentencepiece "
                    "chooses by the rounding of its scores, which tokenizer.json does not have.",
                    _FIX,
                )


def _check_ties(merges: list[list[str]], pieces: list[TokenPiece], place: str) -> None:
    """Raises TokenizerError if merges make two pieces of the same score that share a character, and so may overlap in a text.
    sentencepiece makes the left one first, where merges of tokenizer.json have an order."""
    by_score: dict[float, dict[str, str]] = defaultdict(dict)  # the first piece by each of its characters
    scores = {piece.text: piece.score for piece in pieces}
    for text in dict.fromkeys(left + right for left, right in merges):
        score = scores[text]
        for character in text:
            if (other := by_score[score].setdefault(character, text)) != text:
                raise TokenizerError(
                    place,
                    f"the pieces {other!r:.60} and {text!r:.60} have the same score; where they overlap in a text, sentencepiece "
                    "makes the left one, which tokenizer.json cannot.",
                    _FIX,
                )


def _scored(pieces: list[TokenPiece]) -> list[list[Any]]:
    """The vocabulary of a Unigram model. A user-defined symbol has the score that sentencepiece gives it. No other piece that is
    not normal is ever found; its score must not be the smallest, of which tokenizers makes that of unknown characters."""
    smallest = min((piece.score for piece in pieces if piece.kind is Kind.NORMAL), default=0.0)

    def score(piece: TokenPiece) -> float:
        if piece.kind is Kind.USER_DEFINED:
            return _SYMBOL_SCORE * (len(piece.text.encode()) - 1)
        return piece.score if piece.kind is Kind.NORMAL else max(piece.score, smallest)

    return [[piece.text, score(piece)] for piece in pieces]


def _not_merged(model: dict[str, Any], texts: list[str], pieces: list[TokenPiece]) -> list[str]:
    """The texts of the vocabulary that merges do not make of their own characters, so that `ignore_merges` may not either."""
    from tokenizers import Tokenizer

    alone = {"version": "1.0", "added_tokens": [], "model": {**model, "ignore_merges": False}}
    tokenizer = Tokenizer.from_str(json.dumps(alone))
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    vocab = model["vocab"]
    return [text for text, one in zip(texts, encoded, strict=True) if one.ids != [vocab[text]]]


def _hide(hidden: Iterable[str], usable: Sequence[str], document: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """The step, if any, that cuts each `hidden` text, so that the model never finds it whole. It cuts where no `usable` piece lies
    across, so that no other id changes. A text of unknown characters alone becomes one unknown token, so the normalizer replaces
    it with one such character. Raises TokenizerError if a text has no such place."""
    has_bytes = document["model"]["byte_fallback"]
    hidden = [text for text in hidden if " " not in text and len(text) > 1]
    across = _pieces_by_pair(hidden, usable)
    known, alone = set("".join(usable)), {text for text in usable if len(text) == 1}
    cuts: dict[str, list[str]] = defaultdict(list)
    replaced = []
    for text in hidden:
        if not has_bytes and known.isdisjoint(text):
            replaced.append(text)
            continue
        safe = (
            i
            for i in range(1, len(text))
            if (has_bytes or text[i - 1] in alone or text[i] in alone)
            and not any(_lies_across(piece, at, text, i) for piece, at in across[text[i - 1 : i + 1]])
        )
        if (i := next(safe, None)) is None:
            raise TokenizerError(
                place,
                f"text with the piece {text!r:.60} in it would become that piece in tokenizer.json, not in sentencepiece.",
                _FIX,
            )
        cuts[text[:i]].append(text[i:])
    if replaced:
        unknown = next(char for char in map(chr, _NONCHARACTERS) if char not in known)
        step = {"type": "Replace", "pattern": {"Regex": "|".join(map(_escaped, replaced))}, "content": unknown}
        document["normalizer"] = {"type": "Sequence", "normalizers": [*_parts_of(document["normalizer"]), step]}
    patterns = []
    for left, rights in cuts.items():
        behind = f"(?<={_escaped(left[:-1])})" if left[:-1] else ""
        patterns.append(f"{behind}{_escaped(left[-1])}(?={'|'.join(map(_escaped, rights))})")
    return [_split("|".join(patterns), "MergedWithPrevious")] if patterns else []


def _parts_of(normalizer: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = normalizer.get("normalizers", [normalizer])
    return parts


def _pieces_by_pair(hidden: Iterable[str], usable: Iterable[str]) -> dict[str, list[tuple[str, int]]]:
    """For each two neighbouring characters of the hidden texts: the pieces that have them, and the place between the two."""
    pairs = {text[i - 1 : i + 1] for text in hidden for i in range(1, len(text))}
    pieces_of: dict[str, list[tuple[str, int]]] = {pair: [] for pair in pairs}
    for piece in usable:
        for i in range(1, len(piece)):
            if (pair := piece[i - 1 : i + 1]) in pieces_of:
                pieces_of[pair].append((piece, i))
    return pieces_of


def _lies_across(piece: str, place: int, text: str, i: int) -> bool:
    """Whether a piece, put with its place `place` on the place `i` of a text, agrees with the text where both are."""
    if piece == text:
        return False
    n_left, n_right = min(place, i), min(len(piece) - place, len(text) - i)
    return piece[place - n_left : place + n_right] == text[i - n_left : i + n_right]


def _findable(symbols: list[str]) -> list[str]:
    """The symbols that a text may contain after its spaces became marks. The longest is first, since the first that fits counts."""
    return sorted((symbol for symbol in symbols if " " not in symbol), key=lambda one: (-len(one), one))


def _split(regex: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False}


def _escaped(text: str) -> str:
    """The text as a regex of Oniguruma."""
    return "".join(
        f"\\x{{{ord(character):x}}}" if character.isascii() and not character.isalnum() else character
        for character in text
    )
