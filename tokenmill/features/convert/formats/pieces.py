"""The pieces of a SentencePiece vocabulary, which tokenizer.json has as merges or as scores."""

from enum import IntEnum
from typing import Any, NamedTuple

from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.forms import Form, plain_added
from tokenmill.tokenizer.model import BYTE_TOKENS

MARK = "▁"
_WORK_MAX = 2 * 10**8
"""The largest sum of squared lengths of pieces, which the time to find their merges is in proportion to. Llama 2's has 2e6."""


class Kind(IntEnum):
    """The types of pieces, as in sentencepiece_model.proto. GGUF has the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class TokenPiece(NamedTuple):
    """A piece: its id is its place in the list."""

    text: str
    score: float
    kind: Kind


class Normalization(NamedTuple):
    """What is done to a text. `adds_mark`: a text gets a space in front. `joins_spaces`: spaces at both ends are removed, and
    several become one. Other white space stays."""

    adds_mark: bool
    joins_spaces: bool


def document_of(pieces: list[TokenPiece], is_unigram: bool, normalization: Normalization, place: str) -> dict[str, Any]:
    """The tokenizer.json of pieces. A merge of tokenizer.json makes each piece of each two pieces that it consists of, the highest
    score first, as transformers converts such files. Raises TokenizerError for pieces that are there twice, or without an
    unknown one."""
    vocab = {piece.text: id for id, piece in enumerate(pieces)}
    if len(vocab) < len(pieces):
        twice = next(piece.text for id, piece in enumerate(pieces) if vocab[piece.text] != id)
        raise TokenizerError(place, f"expected every piece once; found {twice!r:.60} twice.")
    unknown = next((id for id, piece in enumerate(pieces) if piece.kind is Kind.UNKNOWN), None)
    has_bytes = any(piece.kind is Kind.BYTE for piece in pieces)
    if unknown is None:
        raise TokenizerError(place, "expected a piece for unknown characters; found none.")
    model: dict[str, Any]
    if is_unigram:
        scored = [[piece.text, piece.score] for piece in pieces]
        model = {"type": "Unigram", "unk_id": unknown, "vocab": scored, "byte_fallback": has_bytes}
    else:
        merges = merges_of(pieces, place)
        settings = {"unk_token": pieces[unknown].text, "fuse_unk": True, "byte_fallback": has_bytes}
        model = {"type": "BPE", **settings, "vocab": vocab, "merges": merges}
    added = [
        plain_added(id, piece.text, special=piece.kind is not Kind.USER_DEFINED)
        for id, piece in enumerate(pieces)
        if piece.kind in (Kind.UNKNOWN, Kind.CONTROL, Kind.USER_DEFINED)
    ]
    decoders: list[dict[str, Any]] = [_replaced({"String": MARK}, " ")]
    decoders += [{"type": "ByteFallback"}] if has_bytes else []
    decoders.append({"type": "Fuse"})
    if normalization.joins_spaces:
        decoders.append(_replaced({"Regex": r"\A +"}, ""))
    elif normalization.adds_mark:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": _normalizer(normalization),
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }


def merges_of(pieces: list[TokenPiece], place: str) -> list[list[str]]:
    """Each two pieces that are a third one together, in the order in which SentencePiece merges: the highest score of the third
    first. Raises TokenizerError where that takes too long."""
    ids = {piece.text: id for id, piece in enumerate(pieces) if piece.kind is Kind.NORMAL}
    if sum(len(text) ** 2 for text in ids) > _WORK_MAX:
        raise TokenizerError(
            place, "the pieces are too long to find their merges.", "Use the tokenizer.json of the same model."
        )
    ranked = []
    for text, id in ids.items():
        splits = [(text[:at], text[at:]) for at in range(1, len(text))]
        splits = [(left, right) for left, right in splits if left in ids and right in ids]
        ranked += [(-pieces[id].score, id, ids[left], ids[right]) for left, right in splits]
    return [[pieces[left].text, pieces[right].text] for *_, left, right in sorted(ranked)]


def pieces_of(form: Form) -> tuple[list[TokenPiece], bool]:
    """The pieces of a tokenizer, and whether a text gets a space in front. Raises TokenizerError unless SentencePiece would merge
    the same way: the tokenizer merges characters, every two tokens that are a third one together are a merge, and only spaces
    are changed in a text."""
    document = form.tokenizer.document
    model = document["model"]
    if form.tokenizer.model is not None or model["type"] != "BPE":
        raise form.cannot("a vocabulary of pieces", "model", "it is no BPE of characters")
    vocab: dict[str, int] = model["vocab"]
    added = document["added_tokens"]
    kinds = {token["id"]: Kind.CONTROL if token["special"] else Kind.USER_DEFINED for token in added}
    if (unknown := vocab.get(model.get("unk_token") or "")) is not None:
        kinds[unknown] = Kind.UNKNOWN
    if model.get("byte_fallback"):
        kinds |= {vocab[text]: Kind.BYTE for text in BYTE_TOKENS if text in vocab}
    _check_found_alike(form, [token for token in added if not token["special"]], kinds)
    texts = {id: text for text, id in vocab.items()} | {token["id"]: token["content"] for token in added}
    if sorted(texts) != list(range(len(texts))):
        raise form.cannot("a vocabulary of pieces", "model.vocab", "some ids below the largest have no token")
    made = list(dict.fromkeys(left + right for left, right in model["merges"]))
    was_made = set(made)
    order = {text: at for at, text in enumerate([*made, *(text for text in texts.values() if text not in was_made)])}
    pieces = [TokenPiece(texts[id], -float(order[texts[id]]), kinds.get(id, Kind.NORMAL)) for id in range(len(texts))]
    if merges_of(pieces, form.place) != model["merges"]:
        raise form.cannot("a vocabulary of pieces", "model.merges", "it would merge other pairs")
    if unknown is None:
        raise form.cannot("a vocabulary of pieces", "model.unk_token", "it has no token for what is unknown")
    for adds_mark in (True, False):
        if document.get("normalizer") == _normalizer(Normalization(adds_mark, False)) and not document.get(
            "pre_tokenizer"
        ):
            return pieces, adds_mark
    raise form.cannot("a vocabulary of pieces", "normalizer", f"it makes {MARK} of spaces, and changes nothing else")


def _check_found_alike(form: Form, added: list[dict[str, Any]], kinds: dict[int, Kind]) -> None:
    """Raises TokenizerError for an added token that is found in other places of a text than a user-defined piece."""
    for token in added:
        why = None
        if token["normalized"]:
            why = "is searched for after normalizing"
        elif token["single_word"] or token["lstrip"] or token["rstrip"]:
            why = "has flags that a piece lacks"
        elif kinds[token["id"]] is not Kind.USER_DEFINED:
            why = f"would be a piece of the kind {kinds[token['id']].name}, which no text becomes"
        if why is not None:
            raise form.cannot("a vocabulary of pieces", "added_tokens", f"{token['content']!r:.60} {why}")


def _normalizer(normalization: Normalization) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if normalization.joins_spaces:
        steps.append(_replaced({"Regex": r"\A +|(?<= ) "}, ""))
        steps.append(_replaced({"Regex": rf"[ {MARK}]+\z"}, ""))  # SentencePiece removes marks at the end, too
    if normalization.adds_mark:
        steps.append({"type": "Prepend", "prepend": MARK})
    steps.append(_replaced({"String": " "}, MARK))
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "normalizers": steps}


def _replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}
