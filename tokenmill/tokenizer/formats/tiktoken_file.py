"""tiktoken's file of a vocabulary: a line a token, its bytes in base64, a space, its rank, which is its id."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.formats.schema import check_range
from tokenmill.tokenizer.model import AddedToken, Merge, Model, bytes_of, check_id, is_text


def read_ranks(content: bytes, place: str) -> dict[bytes, int]:
    """The id of each token. Raises TokenizerError naming the line that is wrong.

    >>> read_ranks(b"YQ== 0\\nIHRoZQ== 7\\n", "tiny.tiktoken")
    {b'a': 0, b' the': 7}
    """
    ranks: dict[bytes, int] = {}
    line_of: dict[int, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line:
            continue
        where = f"{place}: line {number}"
        try:
            encoded, digits = line.split()
            token, id = base64.b64decode(encoded, validate=True), check_id(int(digits), where)
        except (ValueError, binascii.Error):
            raise TokenizerError(f"{where}: expected a token in base64 and its id; found {line!r:.60}.") from None
        other = line_of.get(ranks.get(token, id))
        if not token or other is not None:
            raise TokenizerError(
                f"{where}: token {token!r:.60} with id {id}; expected no empty one, every token and id once"
                + ("." if other is None else f"; line {other} has it as well. Remove one.")
            )
        ranks[token] = id
        line_of[id] = number
    if not ranks:
        raise TokenizerError(f"{place}: no tokens; expected a line a token.")
    return ranks


def write_ranks(model: Model) -> bytes:
    """The file of a model's tokens in the order of their ids, special tokens left out."""
    tokens = model.tokens | {one.id: one.text.encode() for one in model.added if not one.special}
    return b"".join(b"%s %d\n" % (base64.b64encode(token), id) for id, token in sorted(tokens.items()))


def model_of(
    ranks: Mapping[bytes, int], steps: tuple[str, ...], special_tokens: Mapping[str, int], place: str
) -> Model:
    """tiktoken's own reading: any two tokens whose joined bytes are a token may merge, the lowest of those ids first.

    Raises TokenizerError for special tokens that clash, and for what a tokenizer.json of the model would be refused for.
    """
    if not isinstance(special_tokens, Mapping):
        raise TokenizerError(
            f"{place}: special tokens: expected ids by text, as {{text: id}}; found {special_tokens!r:.60}."
        )
    ids = set(ranks.values())
    for text, id in special_tokens.items():
        check_id(id, f"{place}: special token {text!r:.60}")
        if not is_text(text) or id in ids or (token := bytes_of(text)) in ranks or len(token or "") == 1:
            raise TokenizerError(
                f"{place}: special token {text!r:.60} with id {id}: expected a text that is no other token or byte, and an id "
                "that no token has. Take others."
            )
        ids.add(id)
    check_range({**ranks, **special_tokens}, place)
    merges = []
    for token, id in ranks.items():
        for at in range(1, len(token)):
            left, right = ranks.get(token[:at]), ranks.get(token[at:])
            if left is not None and right is not None:
                merges.append(Merge(left, right, id, id))
    return Model(
        tokens={id: token for token, id in sorted(ranks.items(), key=lambda item: item[1])},
        merges=merges,
        steps=steps,
        added=tuple(AddedToken(id, text, special=True, in_vocab=True) for text, id in special_tokens.items()),
        ignore_merges=True,
    )


def with_own_ranks(model: Model) -> Model:
    """The model with one merge a token, the one that its own bytes come to, where merges share a rank; else unchanged.

    tokenizer.json has a rank for each merge and cannot say that two are equal. No id changes: while a token comes about no merge
    crosses its edge, so in any text it is made as from its own bytes, and merges that are last of no token are never made.
    """
    if len({merge.rank for merge in model.merges}) == len(model.merges):
        return model
    rules = {(merge.left, merge.right): merge for merge in model.merges}
    ids = {token: id for id, token in model.tokens.items()}
    last = [last_merge(token, rules, ids) for token in model.tokens.values()]
    kept = sorted((merge for merge in last if merge), key=lambda merge: merge.rank)
    return replace(model, merges=kept)


def last_merge(token: bytes, rules: Mapping[tuple[int, int], Merge], ids: Mapping[bytes, int]) -> Merge | None:
    """The merge that completes a token; None for a byte, and for a token that merges do not lead to."""
    try:
        symbols = [ids[token[i : i + 1]] for i in range(len(token))]
    except KeyError:
        return None
    merge = None
    while len(symbols) > 1:
        pairs = [(rules[pair].rank, i) for i, pair in enumerate(pairwise(symbols)) if pair in rules]
        if not pairs:
            return None
        _, at = min(pairs)
        merge = rules[symbols[at], symbols[at + 1]]
        symbols[at : at + 2] = [merge.token]
    return merge
