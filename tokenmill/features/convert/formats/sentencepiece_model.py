"""SentencePiece's .model files, read and written without its library. Source: sentencepiece_model.proto."""

import math
import struct
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.features.convert.formats.pieces import MARK, Kind, Normalization, TokenPiece, pieces_of
from tokenmill.features.convert.formats.protobuf import field, fields_of, fixed32
from tokenmill.features.convert.formats.sentencepiece_steps import document_as_sentencepiece
from tokenmill.tokenizer.formats.other_kinds import refuse_other
from tokenmill.tokenizer.forms import Form, id_of
from tokenmill_reader.regular_files import read

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # of the model
_TEXT, _SCORE, _KIND = 1, 2, 3  # of a piece
_MODEL_TYPE, _VOCAB_SIZE, _BYTE_FALLBACK = 3, 4, 35  # of the trainer's settings
_SUFFIX_SPACE = 24
_NAME, _CHARSMAP, _ADDS_MARK, _JOINS_SPACES, _ESCAPES_SPACES = 1, 2, 3, 4, 5  # of the normalizer
_UNIGRAM, _BPE, _WORD, _CHAR = 1, 2, 3, 4
_IDS = {"unk_token": 40, "bos_token": 41, "eos_token": 42, "pad_token": 43}
_DEFAULT_IDS = {"unk_token": 0, "bos_token": 1, "eos_token": 2}
_NO_ID = 2**64 - 1  # -1


def read_model_file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The tokenizer.json of a .model file, BPE or Unigram, and its special tokens by name. Raises TokenizerError."""
    return _read(read(path), str(path))


def _read(content: bytes, place: str) -> tuple[dict[str, Any], dict[str, str]]:
    pieces: list[TokenPiece] = []
    settings: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    refuse_other(place, content, "a SentencePiece model")
    for number, value in fields_of(content, place):
        if number not in (_PIECES, _TRAINER, _NORMALIZER):
            continue
        if isinstance(value, int):
            raise TokenizerError(place, f"field {number} is a number; expected a message.", "Fetch the file again.")
        fields = dict(fields_of(value, place))
        if number == _PIECES:
            pieces.append(_piece(fields, f"{place}: piece {len(pieces)}"))
        elif number == _TRAINER:
            settings = fields
        else:
            normalizer = fields
    if not settings or not normalizer:
        raise TokenizerError(place, "ends before its settings, so it is probably cut off.", "Fetch the file again.")
    model_type = settings.get(_MODEL_TYPE, _UNIGRAM)
    if model_type not in (_UNIGRAM, _BPE):
        name = {_WORD: "WORD", _CHAR: "CHAR"}.get(model_type) if isinstance(model_type, int) else None
        raise TokenizerError(f"{place}: model_type", f"expected BPE or Unigram; found {name or repr(model_type):.20}.")
    _check_settings(settings, normalizer, place)
    normalization = Normalization(
        adds_mark=bool(normalizer.get(_ADDS_MARK, 1)), joins_spaces=bool(normalizer.get(_JOINS_SPACES, 1))
    )
    ids = {name: settings.get(number, _DEFAULT_IDS.get(name, _NO_ID)) for name, number in _IDS.items()}
    names = {name: pieces[id].text for name, id in ids.items() if isinstance(id, int) and id < len(pieces)}
    return document_as_sentencepiece(pieces, model_type == _UNIGRAM, normalization, place), names


def _check_settings(settings: dict[int, int | bytes], normalizer: dict[int, int | bytes], place: str) -> None:
    """Raises TokenizerError, naming the setting, for what no step of tokenizer.json does as SentencePiece does it."""
    if settings.get(_SUFFIX_SPACE):
        raise TokenizerError(f"{place}: treat_whitespace_as_suffix", "true; tokenizer.json has nothing like it.")
    if not normalizer.get(_ESCAPES_SPACES, 1):
        raise TokenizerError(f"{place}: escape_whitespaces", "false; expected true, as models are trained by default.")
    if normalizer.get(_CHARSMAP):
        name = normalizer.get(_NAME, b"")
        shown = name.decode(errors="replace") if isinstance(name, bytes) and name else "rules of its own"
        raise TokenizerError(
            f"{place}: normalization_rule_name",
            f"{shown:.40}; expected identity. tokenizer.json does such rules in another way: it drops the accent of '①\u0301', "
            "which SentencePiece keeps.",
            "Use the tokenizer.json that is published with the model: its ids are those of the tokenizers library.",
        )


def _piece(found: dict[int, int | bytes], place: str) -> TokenPiece:
    text, score, kind = found.get(_TEXT), found.get(_SCORE, bytes(4)), found.get(_KIND, Kind.NORMAL)
    try:
        assert isinstance(text, bytes) and isinstance(score, bytes) and isinstance(kind, int) and text
        [number] = struct.unpack("<f", score)
        assert math.isfinite(number)
        return TokenPiece(text.decode(), number, Kind(kind))
    except (AssertionError, ValueError, struct.error):
        raise TokenizerError(
            place, "expected a text, a score and a type; found others.", "Fetch the file again."
        ) from None


def files_of(form: Form) -> dict[str, bytes]:
    """The file tokenizer.model. Raises TokenizerError if SentencePiece would give other ids."""
    pieces, adds_mark = pieces_of(form)
    for piece in pieces:
        if piece.kind is not Kind.USER_DEFINED:
            continue
        if adds_mark:
            why = f"it puts a space in front of a whole text alone, and not behind {piece.text!r:.60}"
            raise form.cannot("a SentencePiece model", "added_tokens", why)
        if " " in piece.text or MARK in piece.text:
            why = f"it makes {MARK} of each space before it searches for {piece.text!r:.60}"
            raise form.cannot("a SentencePiece model", "added_tokens", why)
    content = _content(form, pieces, adds_mark)
    _check_read_back(form, content)
    return {"tokenizer.model": content}


def _check_read_back(form: Form, content: bytes) -> None:
    """Raises TokenizerError unless the written file is read as the tokenizer that it was made of."""
    read_back, _ = _read(content, form.place)
    document = form.tokenizer.document
    added = {token["content"] for one in (document, read_back) for token in one["added_tokens"]}
    for section in ("normalizer", "pre_tokenizer", "model"):
        expected, found = (_without(one.get(section) or {}, added) for one in (document, read_back))
        for field_name, value in found.items():
            if (expected.get(field_name) or None) != (value or None):
                raise form.cannot("a SentencePiece model", f"{section}.{field_name}", f"it would be {value!r:.60}")
    wanted, there = (
        {(added_token["id"], added_token["content"], added_token["special"]) for added_token in each["added_tokens"]}
        for each in (document, read_back)
    )
    if wanted - there:
        token = min(wanted - there)[1]
        raise form.cannot(
            "a SentencePiece model", "added_tokens", f"{token!r:.60} would be found in other places there"
        )


def _without(section: dict[str, Any], added: set[str]) -> dict[str, Any]:
    """A section of tokenizer.json without the added tokens in its vocabulary: whether they are there changes no id."""
    match section.get("vocab"):
        case dict(vocab):
            return {**section, "vocab": {text: id for text, id in vocab.items() if text not in added}}
        case list(vocab):
            return {**section, "vocab": [one for one in vocab if one[0] not in added]}
    return section


def _content(form: Form, pieces: list[TokenPiece], adds_mark: bool) -> bytes:
    ids = {name: id_of(form, name) for name in _IDS}
    has_bytes = any(piece.kind is Kind.BYTE for piece in pieces)
    ids["unk_token"] = next(id for id, piece in enumerate(pieces) if piece.kind is Kind.UNKNOWN)
    settings = [field(_MODEL_TYPE, _BPE), field(_VOCAB_SIZE, len(pieces)), field(_BYTE_FALLBACK, int(has_bytes))]
    for name, number in _IDS.items():
        id = ids[name]
        settings.append(field(number, _NO_ID if id is None else id))
    rules = [
        field(_NAME, b"identity"),
        field(_ADDS_MARK, int(adds_mark)),
        field(_JOINS_SPACES, 0),
        field(_ESCAPES_SPACES, 1),
    ]
    listed = [
        field(
            _PIECES,
            field(_TEXT, piece.text.encode())
            + fixed32(_SCORE, struct.pack("<f", piece.score))
            + field(_KIND, piece.kind),
        )
        for piece in pieces
    ]
    return b"".join([*listed, field(_TRAINER, b"".join(settings)), field(_NORMALIZER, b"".join(rules))])
