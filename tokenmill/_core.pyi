"""The compiled core: bytes and integers in, bytes and integers out; no files, no clock, no environment.

Long calls release the GIL. Ctrl-C or `interrupt(True)` stops them, and they then raise KeyboardInterrupt.
`steps` is a split pattern, given as regexes that are applied one after another. Each cuts every piece that it gets into its
matches and the gaps between them (tokenizers' behaviour "Isolated"). Without steps, each text is one pre-token.
In training, symbols 0..255 are the bytes in the order of `byte_order()`, and symbols from 256 on are the learned tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, final

from tokenmill.arrow_texts import ArrowArray

__all__ = [
    "CODE_HASH",
    "SOURCE_HASH",
    "Counter",
    "Encoder",
    "Merger",
    "Neighbours",
    "TextFinder",
    "bpe_json",
    "byte_order",
    "count_ids",
    "deadline",
    "interrupt",
    "json_lines",
    "look",
    "match_bytes_min",
    "merge_rows",
    "n_calls",
    "not_nfc",
    "patterns",
    "patterns_like",
    "read_bpe",
    "sha256_each",
    "split",
    "splitter",
    "train",
    "train_parity",
]  # fmt: skip

CODE_HASH: str
"""The sha256, in hex, of the crate's code when it was compiled: its sources without comments, documentation and tests."""

SOURCE_HASH: str
"""The sha256, in hex, of the crate's sources when it was compiled (see core/build.rs)."""

def patterns() -> dict[str, list[str]]:
    """The named patterns: name → steps."""

def patterns_like() -> dict[str, list[str]]:
    """Other regexes that split every text like a named pattern, by the name of that pattern."""

def byte_order() -> bytes:
    """The 256 bytes in the order of GPT-2's byte-to-character table (tokenizers' initial alphabet, sorted)."""

def deadline(seconds: float | None) -> None:
    """Make calls from this thread raise UnitTimeoutError once this many seconds have passed; None removes the deadline."""

def interrupt(on: bool) -> None:
    """Make every long call, in all threads, stop with KeyboardInterrupt (True), or let them run again (False)."""

def look() -> None:
    """Raise what a long call would raise now: UnitTimeoutError past the deadline, KeyboardInterrupt after `interrupt(True)`
    or a signal. For waiting on other processes."""

def n_calls() -> int:
    """The number of long calls that run now, in all threads."""

def json_lines(lines: bytes, text_key: str, further_keys: Sequence[str]) -> tuple[Any, list[Any], int] | None:
    """The texts of lines of JSON, and for each further key the values, as large_string arrays, and the number of line ends.

    Each line is one object; blank lines are skipped. The keys differ. Returns None if a line is bad or unusual (deeply nested, or
    with a value that is an integer beyond 64 bits), so that another reader must judge it."""

def read_bpe(file: bytes) -> tuple[bytes, dict[str, int], bytes] | None:
    """Of a byte-level tokenizer.json with a BPE model: the file with an empty vocabulary and no merges, the vocabulary, and the
    merges as 16 bytes each, little-endian: `left, right, rank, token: uint32`. Of several merges of one pair the last counts, in
    the place of the first, as in tokenizers.

    Returns None if there is no such model, or if any of it is bad or unusual, so that another reader must judge it."""

def bpe_json(merges: bytes, vocabulary: Any) -> tuple[str, str]:
    """The JSON of a BPE model's merges, `[[order, left, right, token], ...]` sorted, and of its tokens, `[[id, "bytes in hex"],
    ...]` sorted by id. `merges`: 16 bytes each, as from `read_bpe`; the order is the number of lower ranks. `vocabulary`: as for
    `Encoder`. Raises ValueError for another length of `merges`."""

def count_ids(ids: ArrowArray, id_max: int) -> Any | None:
    """How often each id up to `id_max` occurs in an array of uint16 or uint32: an int64 array, by id. None if one is larger."""

def not_nfc(texts: Any) -> list[int]:
    """The numbers of the texts that are not in NFC by the Unicode version of icu_normalizer, which is no older than that of the
    library tokenizers: no text that it leaves out is changed there. `texts` and errors: as of `Encoder.encode_batch`."""

def sha256_each(texts: Any) -> Any:
    """The sha256 of each text of a large_string array: fixed_size_binary[32]. A null has that of the empty text."""

def split(steps: Sequence[str], text: str) -> list[str]:
    """The pre-tokens of one text, in order. Raises PatternError."""

def match_bytes_min(regex: str) -> int:
    """The fewest bytes that a regex without look-around matches; 0 for any other."""

def splitter(steps: Sequence[str]) -> Literal["scanner", "regex"]:
    """What runs these steps: "scanner" (hand-written for a known pattern) or "regex" (fancy-regex). Raises PatternError."""

@final
class TextFinder:
    """Where given texts occur in a text. However many texts there are, a search takes time in proportion to the text alone."""

    def __new__(cls, texts: Sequence[str]) -> Self: ...
    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """What is found, one behind another, the leftmost first and of these the longest: its first character, the character
        behind it, and its number among the texts."""

    def is_in(self, text: str) -> bool:
        """Whether one of the texts occurs in the text."""

    def occurring(self, texts: Sequence[str]) -> list[int]:
        """The numbers of the texts that occur in one of `texts`, also inside of others."""

@final
class Counter:
    """Exact counts of pre-tokens.

    The tables of all threads together stay below `memory_bytes_max`. A full table is sorted and spilled: `spill(run, batch)` is
    called for each batch, from any thread, and with None at the end of the run.
    """
    def __new__(
        cls,
        steps: Sequence[str],
        threads: int = 1,
        memory_bytes_max: int | None = None,
        spill: Callable[[int, Any], None] | None = None,
    ) -> Self: ...
    def update(self, texts: Any) -> None:
        """Adds every text of a list of str or bytes, or of an Arrow array.

        Raises CorpusError; then nothing is added. Raises PatternError (if a regex gives up), CountsError, or what `spill` raises;
        then the counter cannot be used any more. A call from within an update of the same counter, as in a signal handler, raises
        CountsError and adds nothing."""
    def memory_bytes(self) -> int:
        """The present memory of the tables of counts, in bytes."""
    def drain(self, for_run: bool = False) -> Any | None:
        """The next record batch `pretoken: binary, count: uint64` of the counts that were not spilled, sorted by pretoken. None
        after the last one; then the counter is empty. `for_run` makes smaller batches."""
    def forget(self) -> None:
        """Drops the rest of what `drain` has begun to hand out."""

@final
class Merger:
    """Adds up sorted runs. Counts of run i are multiplied by `weights[i]` / `denominator`, and each sum is rounded once, halves up.
    Sums of 0 and sums below `count_min` are dropped."""
    def __new__(
        cls, weights: Sequence[int], denominator: int = 1, count_min: int = 1, for_run: bool = False
    ) -> Self: ...
    def feed(self, run: int, batch: Any | None = None) -> None:
        """Gives a hungry run its next rows; None says that it has no more."""
    def step(self) -> tuple[Any | None, list[int]]:
        """A batch of the sum, or the hungry runs, which must be fed. With neither, the sum is complete."""
    def totals(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The numbers of distinct pre-tokens, occurrences and bytes of text, first of the output, then of the dropped sums."""

@final
class Neighbours:
    """Upper bounds of the counts of neighbouring tokens in texts, by which texts are cut into phrases for `train` with `words_max`.
    `tokens`: the bytes of every token, by id. `n_bits`: the base-2 logarithm of the number of slots, which take 4 bytes each. Texts
    are large_list<uint32> arrays of ids, with their counts as a uint64 array."""
    def __new__(cls, tokens: Sequence[bytes], words_max: int, token_bytes_max: int | None, n_bits: int) -> Self: ...
    def note(self, texts: Any, counts: Any) -> None:
        """Adds the neighbours in the texts."""
    def n_tokens(self) -> int:
        """The number of tokens of the texts noted so far, each text as often as its count says."""
    def count_of_nth(self, n: int) -> int:
        """A power of two that at least n of the bounds reach; 1 if fewer are above 0."""
    def count_phrases(self, texts: Any, counts: Any, floor: int, counter: Counter) -> None:
        """Adds the phrases of two tokens or more of the texts to a Counter, as bytes of uint32 ids. A phrase ends between two
        tokens whose bound is below `floor`, or which may not become one token."""

def train(
    pretokens: Any,
    counts: Any,
    tokens: Sequence[bytes],
    n_first: int,
    n_tokens_max: int,
    score: str,
    pair_count_min: int,
    token_bytes_max: int | None,
    forbidden: Sequence[bytes],
    progress: Callable[[int, int], None] | None,
    checkpoint_every: int | None,
    checkpoint: Callable[[Any, bytes], None] | None,
    words_max: int | None = None,
) -> tuple[bytes, int, list[bytes]]:
    """The merges, the number of tokens in the text after the last merge, and the bytes of the new tokens, by id.

    The merges are in order, 20 bytes each, little-endian: `left: uint32, right: uint32, token: uint32, count: uint64`.
    `tokens`: the bytes of every token so far, by id. `pretokens`: binary (then the first 256 tokens must be the bytes in the order
    of `byte_order()`) or large_list<uint32> of ids. `counts`: uint64.
    Pairs of the first `n_first` tokens are considered however long they are. `score`: "count", "wordpiece" or "bytes_saved".
    Training stops after `n_tokens_max` new tokens, or when no pair has a count of `pair_count_min`. A pair whose bytes are in
    `forbidden` is never merged. `progress(tokens_done, merges_done)` is called now and then. `checkpoint(words, merges)` is
    called after every `checkpoint_every` merges, with a table `ids: large_list<uint32>, count: uint64` of the present pre-tokens
    and with this call's merges. Another call resumes from these words, their counts and all tokens so far. With `words_max`, a
    token has at most so many words (bytes in a row without white space) and no ": ", and no token is made twice.
    """

def train_parity(
    groups: Sequence[tuple[Any, Any]],
    dev: Sequence[tuple[Any, Any]] | None,
    ratios: Sequence[float],
    tokens: Sequence[bytes],
    n_tokens_max: int,
    pair_count_min: int,
    token_bytes_max: int | None,
    forbidden: Sequence[bytes],
    n_global_merges: int,
    window: tuple[int, float] | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[bytes, int, list[bytes]]:
    """The merges of parity-aware BPE, the number of tokens in the texts of all groups after the last merge, and the bytes of the
    new tokens; see `train`, and tokenmill.training.parity. `groups`: the pre-tokens, as binary, and the counts of each group.
    `dev`: those of the texts by whose tokens groups are compared, in the same order; None: by bytes per token over `ratios`. The
    count of a merge is that in all groups together."""

def merge_rows(merges: bytes, ids: Sequence[int], rank: int) -> bytes:
    """The merges that `train` gave, as 16 bytes each, little-endian: `left, right, rank, token: uint32`.

    `ids`: the id of each token. The first one has the rank `rank`. Of several merges of one
    pair the last stays, as in tokenizers."""

@final
class Encoder:
    """BPE by pairs of ids. `vocabulary`: record batch `id: uint32, token: binary`. `merges`: record batch
    `left: uint32, right: uint32, rank: uint32, token: uint32` (ids); the lowest rank is merged first, then the leftmost pair.
    `added`: texts that are tokens wherever they occur; they are found before splitting, the leftmost and longest first.
    With `fallback`, the first symbols are characters; these 256 ids stand for the bytes of a character without a token."""
    def __new__(
        cls,
        steps: Sequence[str],
        vocabulary: Any,
        merges: Any,
        added: Any,
        ignore_merges: bool,
        fallback: Sequence[int] | None = None,
    ) -> Self: ...
    def finding(self, in_text: Sequence[int]) -> Self:
        """An encoder of the same vocabulary, held in memory once, that finds the tokens with these ids in text, and no others. Its
        cache is its own. Raises TokenizerError for an unknown id."""
    def limit_cache(self, bytes_max: int) -> None:
        """Limits the size of the pre-token cache from now on, and empties it."""
    def with_own_cache(self) -> Encoder:
        """An encoder of the same vocabulary, which both hold once, with an empty cache."""
    def warm(self, pretokens: Any) -> None:
        """Warms the cache with pre-tokens (a binary array, chunked or not, the most frequent first)."""
    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: Any, threads: int, begin_id: int | None = None, end_id: int | None = None) -> Any:
        """A large_list<uint32> array with one list per text. Each list begins with `begin_id` and ends with `end_id`, if given.

        `texts`: a list of str or of bytes, or a string array, chunked (pyarrow's) or not. They are read in place."""
    def encode_batch_with_starts(
        self, texts: Any, threads: int, begin_id: int | None = None, end_id: int | None = None
    ) -> tuple[Any, Any]:
        """The same, and a large_list<uint64> array: the byte at which each token begins in its text."""
    def count_tokens(self, texts: Any, threads: int) -> Any:
        """A uint64 array: the number of ids of each text."""
    def decode(self, ids: list[int] | ArrowArray) -> str:
        """The text of the tokens. Invalid UTF-8 becomes U+FFFD. Raises what `decode_bytes` raises."""
    def decode_bytes(self, ids: list[int] | ArrowArray) -> bytes:
        """The bytes of the tokens, joined. Raises TokenizerError for an id that is not in the vocabulary."""
    def decode_batch(self, ids: Any, threads: int) -> Any:
        """A large_binary array: the bytes of each list of ids (list or large_list of uint16 or uint32). The error for an unknown id
        names its list."""
    def decodes_to(self, ids: Any, texts: Any, begin: bytes, end: bytes) -> bool:
        """Whether each list of ids (list or large_list of uint16 or uint32) decodes to its text (a string or binary array) between
        the bytes `begin` and `end`. What cannot be decoded does not."""
