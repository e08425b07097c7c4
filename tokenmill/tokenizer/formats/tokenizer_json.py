"""Converts Hugging Face's tokenizer.json to the core's model and back."""

from itertools import accumulate, pairwise
from typing import Any

from tokenmill.pretokenizers.json_steps import BeyondCore, parts_of, pre_tokenizer_of, steps_from
from tokenmill.tokenizer.added_tokens import is_plain
from tokenmill.tokenizer.formats.as_loaded import kept_as_loaded
from tokenmill.tokenizer.model import AddedToken, Merges, Model, bytes_of, characters_of

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PLAIN_BPE = ("continuing_subword_prefix", "end_of_word_suffix")
_UNREACHED = {"unk_token": None, "fuse_unk": False, "byte_fallback": False}
"""Settings for characters that are not in the vocabulary. They have no effect if all 256 bytes are."""
_NOT_APPLIED = ("truncation", "padding", "post_processor")
_N_BYTES = 256


def model_of(document: dict[str, Any]) -> Model:
    """The core's model of a document that was read. It gives exactly the ids of `tokenizers`, except that text never becomes a
    special token.

    `truncation`, `padding` and the special tokens of `post_processor` do not matter, because encoding applies none of them.
    Raises BeyondCore for a document that the core cannot run.
    """
    model = document["model"]
    if model["type"] != "BPE":
        raise BeyondCore(f"model.type is {model['type']!r:.40}")
    for field in PLAIN_BPE:
        if model.get(field):
            raise BeyondCore(f"model.{field} is {model[field]!r:.40}")
    if "" in model["vocab"]:
        raise BeyondCore(f"model.vocab: the token with id {model['vocab']['']} is empty")
    nfc = _is_nfc(document.get("normalizer"))
    steps, add_prefix_space = steps_from(document.get("pre_tokenizer"))
    if _kind(document.get("decoder")) != "ByteLevel":
        raise BeyondCore(f"decoder is {_kind(document.get('decoder'))}")
    _check_post_processor(document.get("post_processor"))
    vocab = model["vocab"]
    ignore_merges = model.get("ignore_merges", False)
    added = _added_tokens(document["added_tokens"], vocab, ignore_merges)
    tokens = _tokens(vocab, {added_token.id for added_token in added})
    not_applied = {field: document[field] for field in _NOT_APPLIED if document.get(field) is not None}
    unreached = {field: model[field] for field, plain in _UNREACHED.items() if model.get(field, plain) != plain}
    if model.get("unk_token") is not None or model.get("byte_fallback"):
        n_bytes = sum(len(token) == 1 for token in tokens.values())
        if n_bytes < _N_BYTES:
            which = "unk_token" if model.get("unk_token") is not None else "byte_fallback"
            raise BeyondCore(f"model.{which} is {model[which]!r:.40}, and {_N_BYTES - n_bytes} bytes have no token")
    return Model(
        tokens=tokens,
        merges=merges_of(model["merges"], vocab),
        steps=steps,
        added=added,
        ignore_merges=ignore_merges,
        nfc=nfc,
        add_prefix_space=add_prefix_space,
        not_applied=not_applied | ({"model": unreached} if unreached else {}),
    )


def document_of(model: Model) -> dict[str, Any]:
    """The tokenizer.json of a model in which no two merges share a rank. `tokenizers` gives its tokens the same ids."""
    text = {id: characters_of(token) for id, token in model.tokens.items()}
    text |= {added_token.id: added_token.text for added_token in model.added}
    listed = [*model.tokens, *(added_token.id for added_token in model.added if added_token.in_vocab)]
    around = {field: model.not_applied.get(field) for field in _NOT_APPLIED}
    document = {
        "version": "1.0",
        "truncation": around["truncation"],
        "padding": around["padding"],
        "added_tokens": [
            {
                "id": added_token.id,
                "content": added_token.text,
                "single_word": added_token.single_word,
                "lstrip": added_token.lstrip,
                "rstrip": added_token.rstrip,
                "normalized": added_token.normalized,
                "special": added_token.special,
            }
            for added_token in model.added
        ],
        "normalizer": {"type": "NFC"} if model.nfc else None,
        "pre_tokenizer": pre_tokenizer_of(model.steps, model.add_prefix_space),
        "post_processor": around["post_processor"],
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            **dict.fromkeys(("dropout", *PLAIN_BPE)),
            **_UNREACHED,
            **model.not_applied.get("model", {}),
            "ignore_merges": model.ignore_merges,
            "vocab": {text[id]: id for id in sorted(listed)},
            "merges": [
                [text[merge.left], text[merge.right]] for merge in sorted(model.merges, key=lambda one: one.rank)
            ],
        },
    }
    return kept_as_loaded(document)


def _is_nfc(normalizer: Any) -> bool:
    """Whether text is normalized to NFC; raises BeyondCore for any other normalizer."""
    kinds = {_kind(part) for part in parts_of(normalizer, "normalizers")}
    if kinds - {"NFC"}:
        raise BeyondCore(f"normalizer is {_kind(normalizer)}")
    return bool(kinds)


def _added_tokens(added: list[dict[str, Any]], vocab: dict[str, int], ignore_merges: bool) -> tuple[AddedToken, ...]:
    tokens = tuple(AddedToken.of(token, in_vocab=token["content"] in vocab) for token in added)
    for i, added_token in enumerate(tokens):
        if not added_token.in_vocab or added_token.special:
            continue
        if not added_token.text.isascii() and bytes_of(added_token.text) is not None:
            raise BeyondCore(f"added_tokens[{i}] {added_token.text!r:.40} stands for other bytes in model.vocab")
        if len(added_token.text) == 1:
            raise BeyondCore(f"added_tokens[{i}] {added_token.text!r} is a byte's token")
        if ignore_merges and not is_plain([added_token], [other for other in tokens if other.special]):
            raise BeyondCore(
                f"added_tokens[{i}] {added_token.text!r:.40} is found in some places, and a pre-token in others"
            )
    return tokens


def _tokens(vocab: dict[str, int], added: set[int]) -> dict[int, bytes]:
    text_of = {id: text for text, id in vocab.items()}
    ids = sorted(text_of.keys() - added)
    texts = [text_of[id] for id in ids]
    joined = bytes_of("".join(texts))  # a byte for each character
    if joined is None:
        text = next(text for text in texts if bytes_of(text) is None)
        raise BeyondCore(f"model.vocab: token {text!r:.60} has characters outside the byte-level alphabet")
    ends = accumulate(map(len, texts), initial=0)
    return {id: joined[start:end] for id, (start, end) in zip(ids, pairwise(ends), strict=True)}


def merges_of(merges: list[list[str]] | Merges, vocab: dict[str, int]) -> Merges:
    """The merges as ids, in the order of their ranks."""
    if isinstance(merges, Merges):
        return merges
    import numpy as np

    left, right = ([vocab[merge[i]] for merge in merges] for i in (0, 1))
    token = [vocab[first + second] for first, second in merges]
    # Like tokenizers, this takes the last of equal merges, at the position of the first.
    last = {pair: rank for rank, pair in enumerate(zip(left, right, strict=True))}
    rows = np.array([left, right, range(len(merges)), token], np.uint32).T
    return Merges(rows[list(last.values())].astype("<u4").tobytes())


def _check_post_processor(found: Any) -> None:
    """Raises BeyondCore unless the post_processor only adds special tokens, which encoding leaves out, or changes offsets."""
    for part in parts_of(found, "processors"):
        single = part.get("single")
        if isinstance(single, list) and sum("Sequence" in piece for piece in single) == 1:
            continue
        if _kind(part) not in ("ByteLevel", "BertProcessing", "RobertaProcessing"):
            raise BeyondCore(f"post_processor is {_kind(part)}")


def _kind(part: Any) -> str:
    return str(part["type"]) if part else "null"
