"""Checks that a tokenizer.json is well formed: field types, no duplicate tokens or ids, and merges within the vocabulary.

pydantic models were tried in place of the shapes here and `strict_json.check`. They took 156 lines instead of 110, because each
small object of the format needs a class and pydantic's errors need rewording. Importing pydantic, which loading a tokenizer
does not do otherwise, took 0.18 s: 1.18 times the loading time for gpt-2 (0.99 s before), 1.09 times for qwen3 (2.1 s).
"""

from collections.abc import Mapping
from typing import Any

from tokenmill import _core
from tokenmill.errors import TokenizerError, shown
from tokenmill.tokenizer.formats.as_loaded import MODELS, added_as_loaded, type_of_untyped
from tokenmill.tokenizer.formats.library_limits import SECTIONS, check_limits
from tokenmill.tokenizer.formats.strict_json import Each, check, parse, wrong
from tokenmill.tokenizer.model import FLAGS, ID_MAX, Merges, bytes_of, check_id

ID_GAP_MAX = 2**24
"""The largest amount by which an id may exceed the number of tokens."""

_ADDED = {"id", "content", *FLAGS}

_DIRECTION = ("Left", "Right")
_TRUNCATION = {"direction?": _DIRECTION, "max_length": int, "strategy": str, "stride": int}
_PADDING = {
    "strategy": ("BatchLongest", {"Fixed": int}),
    "direction": _DIRECTION,
    "pad_to_multiple_of?": (None, int),
    "pad_id": int,
    "pad_type_id": int,
    "pad_token": str,
}
_BYTE_LEVEL = {"add_prefix_space": bool, "trim_offsets": bool, "use_regex?": bool}
_PAIR = [str, int]
_PIECE = ({"SpecialToken": {"id": str, "type_id": int}}, {"Sequence": {"id": ("A", "B"), "type_id": int}})
_TEMPLATE_TOKEN = {"id": str, "ids": Each([int]), "tokens": Each([str])}
_BEHAVIORS = ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")
_PATTERN = ({"Regex": str}, {"String": str})
_SHAPES: dict[str, dict[str, Any]] = {
    "ByteLevel": _BYTE_LEVEL,
    "Digits": {"individual_digits": bool},
    "Split": {"behavior": _BEHAVIORS, "invert": bool},
    "RobertaProcessing": {"sep": _PAIR, "cls": _PAIR, "trim_offsets?": bool, "add_prefix_space?": bool},
    "BertProcessing": {"sep": _PAIR, "cls": _PAIR},
}
_FIELDS = {"version", "truncation", "padding", "added_tokens", *SECTIONS, "model"}
_BPE = {
    "dropout?": (None, float, int),
    "unk_token?": (None, str),
    "continuing_subword_prefix?": (None, str),
    "end_of_word_suffix?": (None, str),
    "fuse_unk?": bool,
    "byte_fallback?": bool,
    "ignore_merges?": bool,
}


def read_document(content: bytes, place: str, merges_as_ids: bool = False) -> dict[str, Any]:
    """The JSON object of a well-formed tokenizer.json. Merges are lists of two, in whichever form the file has them. The model has
    a type, and the added tokens have the ids that `tokenizers` gives them. Raises TokenizerError, which names the file and the
    field.

    `merges_as_ids`: the merges are `Merges` if the core can read the file, which takes less than half the time."""
    document = _read_in_core(content, place) if merges_as_ids else None
    if document is None:
        document = parse(content, place, unchecked=("model.vocab", "model.merges"))
    if "auto_map" in document:
        raise TokenizerError(f"{place}: auto_map", "names code to run; tokenmill runs none.", "Remove the entry.")
    _check_sections(document, f"{place}: ")
    model = document.get("model")
    if not isinstance(model, dict):
        wrong(f"{place}: model", "an object", model)
    vocab = model.get("vocab")
    if not isinstance(vocab, dict | list):
        wrong(f"{place}: model.vocab", "an object, or a list for Unigram", vocab)
    if "type" not in model:
        model["type"] = type_of_untyped(model, place)
    if model["type"] not in MODELS:
        wrong(f"{place}: model.type", f"one of {', '.join(MODELS)}", model["type"])
    if isinstance(vocab, dict):
        _check_vocab(vocab, f"{place}: model.vocab")
    else:
        _check_scored(vocab, f"{place}: model.vocab")
    added = document.setdefault("added_tokens", [])
    if not isinstance(added, list):
        wrong(f"{place}: added_tokens", "a list", added)
    ids = vocab if isinstance(vocab, dict) else {token: id for id, (token, _) in enumerate(vocab)}
    document["added_tokens"] = added = added_as_loaded(added, ids, place)
    if not ids and not added:
        raise TokenizerError(
            place, "model.vocab is empty; expected one token or more.", "Fetch or make the file again."
        )
    if isinstance(vocab, dict):
        check_range(
            {added_token["content"]: added_token["id"] for added_token in added} | vocab, f"{place}: model.vocab"
        )
    if model["type"] == "BPE":
        specials = {added_token["content"] for added_token in added if added_token["special"]}
        merges = model.get("merges")
        if isinstance(merges, Merges) and merges.makes({ids[text] for text in specials & ids.keys()}):
            return read_document(content, place)  # which names the merge
        _check_bpe(model, specials, place)
    check_limits(document, place)
    return document


def _read_in_core(content: bytes, place: str) -> dict[str, Any] | None:
    """The document with its merges as ids; None for one that the core leaves to others."""
    found = _core.read_bpe(content)
    if found is None:
        return None
    rest, vocab, merges = found
    document = parse(rest, place)
    document["model"] |= {"vocab": vocab, "merges": Merges(merges)}
    return document


def _check_sections(document: dict[str, Any], place: str) -> None:
    check(document, {"version?": "1.0"}, place)
    if "model" not in document:
        raise TokenizerError(
            place.removesuffix(": "),
            f"is no tokenizer.json, which has a model; found the fields {', '.join(sorted(document)[:3]) or '(none)'}.",
            "If it is a vocab.json or a tekken.json, give it that name, and make a tokenizer.json of it with `tokenmill convert`.",
        )
    if unknown := sorted(document.keys() - _FIELDS):
        raise TokenizerError(
            f"{place}{unknown[0]:.60}", "an unknown field, which the tokenizers library refuses too.", "Remove it."
        )
    for name, shape in (("truncation", _TRUNCATION), ("padding", _PADDING)):
        if document.get(name) is not None:
            check(document[name], shape, f"{place}{name}.")
    for name in SECTIONS:
        if document.get(name) is not None:
            _check_part(document[name], name, f"{place}{name}")


def unread_fields(document: dict[str, Any]) -> list[str]:
    """Fields of a well-formed document that neither `tokenizers` nor the core reads, such as a misspelt one.

    >>> unread_fields({"added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": [], "ignore_merge": True}})
    ['model.ignore_merge']
    """
    known = [(f"added_tokens[{i}]", section_part, _ADDED) for i, section_part in enumerate(document["added_tokens"])]
    if document["model"]["type"] == "BPE":
        known.append(("model", document["model"], {"type", "vocab", "merges", *_BPE}))
    waiting = [(name, name, document.get(name) or {}) for name in SECTIONS if name != "normalizer"]
    while waiting:
        where, section, part = waiting.pop()
        kind = part.get("type")
        if kind == "Sequence":
            inner = SECTIONS[section]
            waiting += [(f"{where}.{inner}[{i}]", section, section_part) for i, section_part in enumerate(part[inner])]
        if kind in _SHAPES:
            known.append((where, part, {"type", "pattern", *_SHAPES[kind]}))
    return sorted(
        f"{where}.{field}" for where, part, fields in known for field in part if not {field, f"{field}?"} & fields
    )


def _check_part(part: Any, section: str, where: str) -> None:
    """Checks a normalizer, pre_tokenizer, post_processor or decoder. Types without a shape here are left to `tokenizers`."""
    if not isinstance(part, dict):
        wrong(where, "an object or null", part)
    kind = part.get("type")
    if not isinstance(kind, str):
        wrong(f"{where}.type", "a text", kind)
    if kind == "Sequence":
        inner = part.get(SECTIONS[section])
        if not isinstance(inner, list):
            wrong(f"{where}.{SECTIONS[section]}", "a list", inner)
        for i, one in enumerate(inner):
            _check_part(one, section, f"{where}.{SECTIONS[section]}[{i}]")
    if kind == "Split":
        check(part.get("pattern"), _PATTERN, f"{where}.pattern.")
    if kind == "TemplateProcessing":
        for field in ("single", "pair"):
            if not isinstance(part.get(field), str):
                check(part.get(field), Each([_PIECE]), f"{where}.{field}")
        check(part.get("special_tokens"), Each([_TEMPLATE_TOKEN]), f"{where}.special_tokens.")
    if section != "normalizer":  # a normalizer's ByteLevel has no fields
        check(part, _SHAPES.get(kind, {}), f"{where}.")


def _check_vocab(vocab: dict[str, Any], place: str) -> None:
    ids = vocab.values()
    if (
        set(map(type, ids)) <= {int}
        and len(set(ids)) == len(ids)
        and 0 <= min(ids, default=0) <= max(ids, default=0) <= ID_MAX
    ):
        return  # one by one they take ten times as long, which large vocabularies feel
    seen: dict[int, str] = {}
    for token, id in vocab.items():
        check_id(id, f"{place}: token {token!r:.60}")
        if id in seen:
            raise TokenizerError(
                place, f"the tokens {seen[id]!r:.60} and {token!r:.60} both have id {id}; expected one each."
            )
        seen[id] = token


def _check_scored(vocab: list[Any], place: str) -> None:
    """Checks the vocabulary of a Unigram model: tokens with scores, whose ids are their positions."""
    seen: set[str] = set()
    for i, entry in enumerate(vocab):
        if not (
            isinstance(entry, list) and len(entry) == 2 and type(entry[0]) is str and type(entry[1]) in (int, float)
        ):
            wrong(f"{place}[{i}]", "a token and its score", entry)
        if entry[0] in seen:
            raise TokenizerError(f"{place}[{i}]", f"{entry[0]!r:.60} is there twice; expected every token once.")
        seen.add(entry[0])


def check_range(ids: Mapping[Any, int], place: str) -> None:
    """Raises TokenizerError if an id exceeds the number of tokens by more than ID_GAP_MAX."""
    id = max(ids.values(), default=0)
    if id > len(ids) + ID_GAP_MAX:
        token = next(one for one in ids if ids[one] == id)
        raise TokenizerError(
            place,
            f"token {token!r:.60} has id {id}, but there are {len(ids)} tokens; expected ids up to {ID_GAP_MAX:,} "
            "more than that.",
        )


def _check_bpe(model: dict[str, Any], specials: set[str], place: str) -> None:
    check(model, _BPE, f"{place}: model.")
    if model.get("dropout"):
        raise TokenizerError(
            place, f"model.dropout is {model['dropout']!r:.40}: ids would differ each time.", "Set it to null."
        )
    vocab, merges = model["vocab"], model.get("merges")
    if not isinstance(vocab, dict):
        wrong(f"{place}: model.vocab", "an object", vocab)
    if not isinstance(merges, list | Merges):
        wrong(f"{place}: model.merges", "a list", merges)
    unk = model.get("unk_token")
    if unk is not None and unk not in vocab:
        raise TokenizerError(
            f"{place}: model.unk_token", f"{unk!r:.60} is not in model.vocab.", "Add it, or set it to null."
        )
    for text in sorted(specials & vocab.keys()):
        if len(text) == 1 and bytes_of(text) is not None and text != unk:
            raise TokenizerError(
                f"{place}: model.vocab", f"the special token {text!r} is a byte's token.", "Remove its mark."
            )
    if isinstance(merges, Merges):
        return  # read_document has looked at them
    n_prefix = len(model.get("continuing_subword_prefix") or "")
    merges[:] = [merge for merge in merges if not (type(merge) is str and merge.startswith("#version"))]
    kind = type(merges[0]) if merges else list
    for rank, merge in enumerate(merges):
        pair = merge.split(" ") if type(merge) is str else merge
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not str:
            raise TokenizerError(f"{place}: model.merges[{rank}]", f"expected two tokens; found {shown(merge)}.")
        if type(merge) is not kind:
            raise TokenizerError(
                f"{place}: model.merges[{rank}]",
                f"expected all merges as strings or all as lists; found {shown(merge)}.",
            )
        merges[rank] = pair
        left, right = pair
        token = left + right[n_prefix:]
        if left not in vocab or right not in vocab or token not in vocab:
            missing = next(text for text in (left, right, token) if text not in vocab)
            raise TokenizerError(
                f"{place}: model.merges[{rank}]",
                f"{missing!r:.60} is not in model.vocab; expected both parts and the result there.",
            )
        if token in specials:
            raise TokenizerError(
                f"{place}: model.merges[{rank}]",
                f"it makes the special token {token!r:.60} out of plain text.",
                "Remove it.",
            )
