"""Hugging Face's tokenizer.json: into the core's terms and out of them."""

import json
from typing import Any, NoReturn

from tokenmill.errors import TokenizerError
from tokenmill.pre_tokenizer import BeyondCore, pre_tokenizer_of, steps_from
from tokenmill.vocabulary import AddedToken, Merge, Model, bytes_of, characters_of, check_id, is_text

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PLAIN_BPE: dict[str, tuple[object, ...]] = {
    "dropout": (None, 0),
    "unk_token": (None,),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
}


def parse(content: bytes, place: str) -> dict[str, Any]:
    """The JSON object of a tokenizer.json whose tokens and ids are well formed. Raises TokenizerError."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        problem = "nested too deep" if isinstance(error, RecursionError) else f"no valid JSON: {error}"
        raise TokenizerError(f"{place}: {problem}. Fetch or make the file again.") from None
    if not isinstance(document, dict):
        _wrong(place, "an object", document)
    model = document.get("model")
    if not isinstance(model, dict):
        _wrong(f"{place}: model", "an object", model)
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        _check_vocab(vocab, f"{place}: model.vocab")
    added = document.setdefault("added_tokens", [])
    if not isinstance(added, list):
        _wrong(f"{place}: added_tokens", "a list", added)
    _check_added(added, vocab if isinstance(vocab, dict) else {}, place)
    if isinstance(vocab, dict) and isinstance(model.get("merges"), list):
        _check_reach({one["content"] for one in added if one["special"]} & vocab.keys(), model["merges"], place)
    return document


def model_of(document: dict[str, Any], place: str) -> Model:
    """What the core can run of a parsed document, exactly as `tokenizers` runs it, but that text never becomes a special token.

    `truncation`, `padding` and the special tokens of `post_processor` do not matter: encoding applies none of them. Raises
    BeyondCore for what the core cannot, TokenizerError for a file that contradicts itself.
    """
    model = document["model"]
    if model.get("type", "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise BeyondCore(f"model.type is {model.get('type')!r:.40}")
    for field, plain in _PLAIN_BPE.items():
        if model.get(field) not in plain:
            raise BeyondCore(f"model.{field} is {model[field]!r:.40}")
    if document.get("normalizer") is not None:
        raise BeyondCore(f"normalizer is {_kind(document['normalizer'])}")
    steps = steps_from(document.get("pre_tokenizer"))
    if _kind(document.get("decoder")) != "ByteLevel":
        raise BeyondCore(f"decoder is {_kind(document.get('decoder'))}")
    _check_post_processor(document.get("post_processor"))
    vocab = model["vocab"]
    added = _added_tokens(document["added_tokens"], vocab)
    return Model(
        tokens=_tokens(vocab, {one.id for one in added}),
        merges=_merges(model.get("merges"), vocab, f"{place}: model.merges"),
        steps=steps,
        added=added,
        ignore_merges=model.get("ignore_merges") is True,
    )


def document_of(model: Model) -> dict[str, Any]:
    """The tokenizer.json of a model whose merges all have ranks of their own."""
    text = {id: characters_of(token) for id, token in model.tokens.items()}
    text |= {one.id: one.text for one in model.added}
    listed = [*model.tokens, *(one.id for one in model.added if one.in_vocab)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": one.id, "content": one.text, **flags, "special": one.special} for one in model.added],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer_of(model.steps),
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": model.ignore_merges,
            "vocab": {text[id]: id for id in sorted(listed)},
            "merges": [[text[one.left], text[one.right]] for one in sorted(model.merges, key=lambda one: one.rank)],
        },
    }


def _check_vocab(vocab: dict[str, Any], place: str) -> None:
    seen: dict[int, str] = {}
    for token, id in vocab.items():
        check_id(id, f"{place}: token {token!r:.60}")
        if id in seen:
            raise TokenizerError(
                f"{place}: the tokens {seen[id]!r:.60} and {token!r:.60} both have id {id}; expected one each."
            )
        seen[id] = token


def _check_added(added: list[Any], vocab: dict[str, int], place: str) -> None:
    """Contents and ids are well formed, each once, and the ids are those that `tokenizers` gives."""
    by_id: dict[int, str] = {id: token for token, id in vocab.items()}
    texts: set[str] = set()
    last = -1
    for i, one in enumerate(added):
        where = f"{place}: added_tokens[{i}]"
        if not isinstance(one, dict):
            _wrong(where, "an object", one)
        id, text = check_id(one.get("id"), where), one.get("content")
        if not is_text(text):
            _wrong(f"{where}.content", "a text that is not empty", text)
        for flag in ("special", "lstrip", "rstrip", "single_word", "normalized"):
            if not isinstance(one.get(flag), bool):
                _wrong(f"{where}.{flag}", "true or false", one.get(flag))
        if text in texts:
            raise TokenizerError(f"{where}: {text!r:.60} is there twice; expected every added token once.")
        if vocab and id != (expected := vocab.get(text, max(last + 1, len(vocab)))):
            raise TokenizerError(
                f"{where}: {text!r:.60} has id {id}, but the tokenizers library gives it {expected}. Mend the id."
            )
        if by_id.setdefault(id, text) != text:
            raise TokenizerError(f"{where}: {text!r:.60} and {by_id[id]!r:.60} both have id {id}; expected one each.")
        texts.add(text)
        last = max(last, id)


def _check_reach(specials: set[str], merges: list[Any], place: str) -> None:
    """No special token is a byte's token or a merge's result: text would become it, in either engine."""
    for text in specials:
        if len(text) == 1 and bytes_of(text) is not None:
            raise TokenizerError(
                f"{place}: model.vocab: the special token {text!r} is a byte's token. Remove its mark."
            )
    for rank, merge in enumerate(merges):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if isinstance(parts, list) and all(isinstance(part, str) for part in parts) and "".join(parts) in specials:
            raise TokenizerError(
                f"{place}: model.merges[{rank}]: it makes the special token {''.join(parts)!r:.60} out of plain text. Remove it."
            )


def _added_tokens(added: list[dict[str, Any]], vocab: dict[str, int]) -> tuple[AddedToken, ...]:
    tokens = tuple(AddedToken(one["id"], one["content"], one["special"], one["content"] in vocab) for one in added)
    specials = [one.text for one in tokens if one.special]
    for i, one in enumerate(tokens):
        if one.in_vocab and not one.text.isascii() and bytes_of(one.text) is not None:
            raise BeyondCore(f"added_tokens[{i}] {one.text!r:.40} stands for other bytes in model.vocab")
        if one.special:
            continue
        for flag in ("lstrip", "rstrip", "single_word", "normalized"):
            if added[i][flag]:
                raise BeyondCore(f"added_tokens[{i}].{flag} is true")
        if hidden := next((special for special in specials if _may_overlap(special, one.text)), None):
            raise BeyondCore(f"added_tokens[{i}] {one.text!r:.40} may overlap the special token {hidden!r:.40}")
    return tokens


def _may_overlap(special: str, text: str) -> bool:
    """Whether `tokenizers`, which looks for both, could find the special token where the core, which does not, finds text."""
    return text in special or any(special.endswith(text[:n]) for n in range(1, len(text)))


def _tokens(vocab: dict[str, int], added: set[int]) -> dict[int, bytes]:
    tokens = {}
    for text, id in sorted(vocab.items(), key=lambda item: item[1]):
        if id in added:
            continue
        token = bytes_of(text)
        if token is None:
            raise BeyondCore(f"model.vocab: token {text!r:.60} has characters outside the byte-level alphabet")
        tokens[id] = token
    return tokens


def _merges(merges: Any, vocab: dict[str, int], place: str) -> list[Merge]:
    if not isinstance(merges, list):
        _wrong(place, "a list", merges)
    found: dict[tuple[int, int], Merge] = {}
    for rank, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            _wrong(f"{place}[{rank}]", "two tokens", merge)
        ids = [vocab.get(text) for text in (*pair, "".join(pair))]
        left, right, token = ids
        if left is None or right is None or token is None:
            missing = (*pair, "".join(pair))[ids.index(None)]
            raise TokenizerError(
                f"{place}[{rank}]: {missing!r:.60} is not in model.vocab; expected both parts and the result there."
            )
        found[left, right] = Merge(left, right, rank, token)  # as in tokenizers, the last of equal ones counts
    return list(found.values())


def _check_post_processor(found: Any) -> None:
    """Nothing but special tokens, which encoding leaves out, and offsets may come of it."""
    parts = found.get("processors") if _kind(found) == "Sequence" else [found]
    for part in parts if isinstance(parts, list) else [parts]:
        if _kind(part) == "TemplateProcessing":
            single = part.get("single")
            pieces = single if isinstance(single, list) else []
            if sum(isinstance(piece, dict) and "Sequence" in piece for piece in pieces) == 1:
                continue
        if part is not None and _kind(part) not in ("ByteLevel", "BertProcessing", "RobertaProcessing"):
            raise BeyondCore(f"post_processor is {_kind(part)}")


def _kind(part: Any) -> str:
    return str(part.get("type")) if isinstance(part, dict) else "null" if part is None else repr(part)[:40]


def _wrong(place: str, expected: str, found: object) -> NoReturn:
    raise TokenizerError(f"{place}: expected {expected}; found {found!r:.60}.")
