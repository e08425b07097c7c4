"""Learns a vocabulary from counts of pre-tokens: byte-level BPE, merge for merge that of `tokenizers`' BpeTrainer."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from tokenmill import _core
from tokenmill.counts import check_schema
from tokenmill.errors import ParamsError
from tokenmill.patterns import steps_of
from tokenmill.pre_tokenizer import pre_tokenizer_of
from tokenmill.threads import threads_or_all
from tokenmill.tokenizer import Tokenizer
from tokenmill.vocabulary import CHARACTERS, ID_MAX, AddedToken, Merge, Model, bytes_of, is_text

_N_BYTES = 256


def train_vocab(
    counts: pa.Table,
    vocab_size: int,
    pattern: str | None,
    special_tokens: Sequence[str] = (),
    pair_count_min: int = 2,
    token_bytes_max: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tokenizer:
    """A tokenizer of at most `vocab_size` tokens: the special ones, the 256 bytes, then the learned ones, in this order of ids.

    `counts`: pretoken (binary), count (uint64). `pattern`: the one they were counted with. `pair_count_min`: a pair that
    occurs less often is not merged; when none is left, learning stops, and `vocab_size` of the tokenizer is smaller.
    `token_bytes_max`: tokens of more than two bytes stay shorter than that, as with `max_token_length` of BpeTrainer.
    `progress(n_tokens, n_merges)`, learned so far, is called now and then. A pair whose text is a special token's is not
    merged. Raises ParamsError, PatternError, CountsError.

    >>> from tokenmill import Counter
    >>> counter = Counter(pattern="gpt2")
    >>> counter.update(["low low lower lowest"])
    >>> tokenizer = train_vocab(counter.finish(), vocab_size=300, pattern="gpt2")
    >>> tokenizer.vocab_size, tokenizer.token_bytes(257)
    (260, b'low')
    """
    check_schema(counts, "counts")
    steps = steps_of(pattern)
    pre_tokenizer_of(steps)  # a pattern that cannot be saved fails now, not after training
    _check_params(vocab_size, special_tokens, pair_count_min, token_bytes_max)
    n_special = len(special_tokens)
    merges = pa.table(
        _core.train(
            counts["pretoken"],
            counts["count"],
            vocab_size - _N_BYTES - n_special,
            pair_count_min,
            token_bytes_max,
            [token for special in special_tokens if (token := bytes_of(special)) is not None],
            threads_or_all(threads),
            progress,
        )
    )
    symbols = [bytes([byte]) for byte in _core.byte_order()]
    ranked = []
    columns = (merges[name].to_pylist() for name in ("left", "right", "token"))
    for rank, (left, right, token) in enumerate(zip(*columns, strict=True)):
        if token == len(symbols):
            symbols.append(symbols[left] + symbols[right])
        ranked.append(Merge(left + n_special, right + n_special, rank, token + n_special))
    added = [AddedToken(id, text, special=True, in_vocab=True) for id, text in enumerate(special_tokens)]
    tokens = {symbol + n_special: token for symbol, token in enumerate(symbols)}
    return Tokenizer(Model(tokens, ranked, steps, tuple(added), ignore_merges=False))


def _check_params(
    vocab_size: int, special_tokens: Sequence[str], pair_count_min: int, token_bytes_max: int | None
) -> None:
    if isinstance(special_tokens, str):
        raise ParamsError(
            f"special_tokens: expected a list of texts; found the text {special_tokens!r}. Put it into a list."
        )
    for text in special_tokens:
        if not is_text(text):
            raise ParamsError(f"special_tokens: found {text!r:.60}; expected a text that is not empty.")
        if text in CHARACTERS:
            raise ParamsError(f"special_tokens: {text!r} is how tokenizer.json writes a byte. Choose a longer text.")
    if len(set(special_tokens)) < len(special_tokens):
        raise ParamsError(f"special_tokens: expected every token once; found {list(special_tokens)}.")
    smallest = _N_BYTES + len(special_tokens)
    if not smallest <= vocab_size <= ID_MAX:
        raise ParamsError(
            f"vocab_size: found {vocab_size}; allowed: {smallest} ({_N_BYTES} bytes + {len(special_tokens)} special tokens) "
            f"to {ID_MAX}."
        )
    if pair_count_min < 1:
        raise ParamsError(f"pair_count_min: found {pair_count_min}; allowed: 1 or more.")
    if token_bytes_max is not None and token_bytes_max < 2:
        raise ParamsError(f"token_bytes_max: found {token_bytes_max}; allowed: 2 or more, or None.")
