"""tiktoken's vocabulary file. Each line has a token's bytes in base64, a space, and its rank, which is also its id."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace

from tokenmill.errors import TokenizerError
from tokenmill.tokenizer.formats.schema import check_range
from tokenmill.tokenizer.merging import Rules, merge_all
from tokenmill.tokenizer.model import AddedToken, Merge, Merges, Model, bytes_of, check_id, is_text

_EMPTY = b"="
"""How tiktoken's files have the empty token, which no text becomes. Whisper's has one."""
_MERGES_MAX = 2**20
_MERGES_PER_TOKEN_MAX = 16
"""A file has the larger number of merges at most, that of o200k_base 2.2 for each token: about 300 bytes of memory each."""
_WORK_MAX = 2 * 10**8
"""The largest sum of squared lengths of tokens, which the time to find their merges is in proportion to. o200k_base has 1.8e7."""


def read_ranks(content: bytes, place: str) -> dict[bytes, int]:
    """The id of each token. Raises TokenizerError, which names the wrong line.

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
            token = b"" if encoded == _EMPTY else base64.b64decode(encoded, validate=True)
            id = check_id(int(digits), where)
        except (ValueError, binascii.Error):
            raise TokenizerError(  # without the line, which may be of any other file
                where, f"expected a token in base64 and its id; found something else, of {len(line):,} bytes."
            ) from None
        other = line_of.get(ranks.get(token, id))
        if other is not None:
            raise TokenizerError(
                where,
                f"token {token!r:.60} with id {id}; expected every token and id once; line {other} has it as well.",
                "Remove one.",
            )
        ranks[token] = id
        line_of[id] = number
    if not ranks:
        raise TokenizerError(place, "no tokens; expected a line a token.")
    return ranks


def write_ranks(model: Model) -> bytes:
    """The tokens of a model as a tiktoken file, in the order of their ids, without special tokens."""
    tokens = model.tokens | {
        added_token.id: added_token.text.encode() for added_token in model.added if not added_token.special
    }
    return b"".join(b"%s %d\n" % (base64.b64encode(token), id) for id, token in sorted(tokens.items()))


def model_of(
    ranks: Mapping[bytes, int], steps: tuple[str, ...], special_tokens: Mapping[str, int], place: str
) -> Model:
    """The model as tiktoken reads the file: two tokens may merge if their joined bytes are a token, and the lowest id goes first.

    Raises TokenizerError for special tokens that clash, and for ids that a tokenizer.json may not have either.
    """
    if not isinstance(special_tokens, Mapping):
        raise TokenizerError(
            place, f"special tokens: expected ids by text, as {{text: id}}; found {special_tokens!r:.60}."
        )
    ids = set(ranks.values())
    for text, id in special_tokens.items():
        check_id(id, f"{place}: special token {text!r:.60}")
        if not is_text(text) or id in ids or (token := bytes_of(text)) in ranks or len(token or "") == 1:
            raise TokenizerError(
                place,
                f"special token {text!r:.60} with id {id}: expected a text that is no other token or byte, and an id "
                "that no token has.",
                "Take others.",
            )
        ids.add(id)
    check_range({**ranks, **special_tokens}, place)
    merges: list[Merge] = []
    merges_max, work = max(_MERGES_MAX, _MERGES_PER_TOKEN_MAX * len(ranks)), 0
    for token, id in ranks.items():
        work += len(token) ** 2
        if work > _WORK_MAX or len(merges) > merges_max:
            raise TokenizerError(
                place,
                f"token {token!r:.60} with id {id} has {len(token):,} bytes: the tokens up to this one are too long, "
                f"or have more than {merges_max:,} merges.",
                "Remove long tokens, or use the tokenizer.json of the same tokenizer.",
            )
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
    """The model with one merge per token, the last one when the token's own bytes are merged. Unchanged if no rank is shared.

    tokenizer.json ranks its merges by position and cannot express equal ranks. No id changes: while a token is being built, no
    merge crosses its edge, so it is built the same way in any text as from its own bytes alone. A merge that completes no token
    this way is never used.
    """
    if Merges.of(model.merges).n_ranks == len(model.merges):
        return model
    rules = {(merge.left, merge.right): merge for merge in model.merges}
    ids = {token: id for id, token in model.tokens.items()}
    last = [last_merge(token, rules, ids) for token in model.tokens.values()]
    kept = sorted((merge for merge in last if merge), key=lambda merge: merge.rank)
    return replace(model, merges=kept)


def last_merge(token: bytes, rules: Rules, ids: Mapping[bytes, int]) -> Merge | None:
    """The merge that completes a token; None for a single byte, and for a token that the merges cannot build."""
    try:
        symbols = [ids[token[i : i + 1]] for i in range(len(token))]
    except KeyError:
        return None
    merge = merge_all(symbols, rules)
    return merge if len(symbols) == 1 else None
