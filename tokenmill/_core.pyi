"""The compiled core: bytes and integers in, bytes and integers out; no files, no clock, no environment.

Long calls release the GIL, notice Ctrl-C and `interrupt(True)`, and then raise KeyboardInterrupt.
`steps` is a split pattern as the regexes applied one after another: each cuts every piece it is given into its
matches and the gaps between them (tokenizers' behaviour "Isolated"); no steps: each text is one pre-token.
Symbols of training: 0..255 are the bytes in the order of `byte_order()`, from 256 on the learned tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, final

from tokenmill.arrow_texts import ArrowArray

__all__ = [
    "SOURCE_HASH",
    "Counter",
    "Encoder",
    "Merger",
    "byte_order",
    "deadline",
    "interrupt",
    "json_lines",
    "merge_rows",
    "patterns",
    "patterns_like",
    "split",
    "splitter",
    "train",
]  # fmt: skip

SOURCE_HASH: str
"""sha256, in hex, of the crate's sources at the time of compiling (see core/build.rs)."""

def patterns() -> dict[str, list[str]]:
    """The named patterns: name → steps."""

def patterns_like() -> dict[str, list[str]]:
    """By the name of a pattern, other regexes that cut every text like it."""

def byte_order() -> bytes:
    """The 256 bytes in the order of GPT-2's byte-to-character table (tokenizers' initial alphabet, sorted)."""

def deadline(seconds: float | None) -> None:
    """Make calls from this thread raise UnitTimeoutError from so many seconds on; None: from none on."""

def interrupt(on: bool) -> None:
    """Make every long call, in all threads, stop with KeyboardInterrupt (True), or let them run again (False)."""

def json_lines(lines: bytes, text_key: str, id_key: str | None = None) -> tuple[Any, Any | None, int] | None:
    """The texts and, with `id_key`, ids of lines of JSON, one object a line, as large_string arrays, and how many line ends there
    are; blank lines have no text.
    None: another reader is to judge one of the lines, which is bad or unusual: deep, or with an id that is no integer of 64
    bits."""

def split(steps: Sequence[str], text: str) -> list[str]:
    """The pre-tokens of one text, in order. Raises PatternError."""

def splitter(steps: Sequence[str]) -> Literal["scanner", "regex"]:
    """What runs these regexes: a scanner made for them by hand, or fancy-regex. Raises PatternError."""

@final
class Counter:
    """Counts of pre-tokens, exact, or with `width` approximate: too low by at most the pre-tokens counted / width.

    What the tables of all threads hold stays below `memory_bytes_max`: a full one is sorted and handed to `spill(run, batch)`
    batch for batch, from any thread, and with None at the run's end.
    """
    def __new__(
        cls,
        steps: Sequence[str],
        threads: int = 1,
        memory_bytes_max: int | None = None,
        spill: Callable[[int, Any], None] | None = None,
        width: int | None = None,
    ) -> Self: ...
    def update(self, texts: Any) -> None:
        """Adds every text of a list of str or bytes or of an Arrow array. Raises CorpusError, and then nothing is added;
        PatternError (when a regex gives up), CountsError, or what `spill` raises, and then the counter is of no more use.
        CountsError, with nothing added, from within an update of the same counter, as in a signal's handler."""
    def memory_bytes(self) -> int:
        """What the tables of counts hold now."""
    def missed_max(self) -> int:
        """By how much a count may be too low."""
    def drain(self, for_run: bool = False) -> Any | None:
        """The next record batch `pretoken: binary, count: uint64` of what is counted and not spilled, sorted by pretoken;
        None after the last one, and then the counter is empty. `for_run`: smaller batches."""
    def forget(self) -> None:
        """Leaves nothing of what `drain` has begun to hand out."""

@final
class Merger:
    """Adds sorted runs up: run i times `weights[i]` / `denominator`, each sum rounded once, halves up; sums below `count_min`
    and those of 0 are dropped."""
    def __new__(
        cls, weights: Sequence[int], denominator: int = 1, count_min: int = 1, for_run: bool = False
    ) -> Self: ...
    def feed(self, run: int, batch: Any | None = None) -> None:
        """The next rows of a run that was said to be hungry; None: it has no more."""
    def step(self) -> tuple[Any | None, list[int]]:
        """A batch of the sum, or the runs that are hungry; neither: all is done."""
    def totals(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Distinct pre-tokens, occurrences, bytes of text: of what came out, and of what was dropped."""

def train(
    pretokens: Any,
    counts: Any | None,
    tokens: Sequence[bytes],
    n_first: int,
    n_tokens_max: int,
    score: str,
    pair_count_min: int,
    token_bytes_max: int | None,
    forbidden: Sequence[bytes],
    threads: int,
    progress: Callable[[int, int], None] | None,
    checkpoint_every: int | None,
    checkpoint: Callable[[Any, bytes], None] | None,
) -> tuple[bytes, int, list[bytes]]:
    """The merges in order, 20 bytes each, little-endian: `left: uint32, right: uint32, token: uint32, count: uint64`; the
    number of tokens of which the text consists then; and the bytes of the new tokens, by id.

    `tokens`: the bytes of every token so far, by id. `pretokens`: binary (the first 256 tokens are the bytes in the order
    of `byte_order()` then), large_list<uint32> of ids, or a Counter, with None for `counts`: what it has not spilled.
    Pairs of the first `n_first` tokens are looked at however long they are. `score`: "count", "wordpiece" or
    "bytes_saved". Stops after n_tokens_max new tokens, or when no pair counts pair_count_min. A pair whose bytes are in
    `forbidden` is never merged. `progress(tokens_done, merges_done)` is called now and then; `checkpoint(words, merges)`,
    after every `checkpoint_every` merges, with a table `ids: large_list<uint32>, count: uint64` of the pre-tokens as they
    are and this call's merges: with the words, their counts and all tokens so far, another call goes on from there.
    """

def merge_rows(merges: bytes, ids: Sequence[int], rank: int) -> bytes:
    """Merges as `train` gives them, 16 bytes each, little-endian: `left, right, rank, token: uint32`, by the `ids` of tokens.

    The first one has the rank `rank`; of merges of one pair the last stays, as in tokenizers."""

@final
class Encoder:
    """BPE by integer pairs. `vocabulary`: record batch `id: uint32, token: binary`; `merges`: record batch
    `left: uint32, right: uint32, rank: uint32, token: uint32` (ids); lowest rank first, then the leftmost.
    `added`: texts that are tokens wherever they stand, found before splitting, leftmost and longest first."""
    def __new__(cls, steps: Sequence[str], vocabulary: Any, merges: Any, added: Any, ignore_merges: bool) -> Self: ...
    def limit_cache(self, bytes_max: int) -> None:
        """What may be remembered of pre-tokens that were met, from now on; what was is forgotten."""
    def forget(self) -> None:
        """Forgets all pre-tokens that were met or warmed, and gives their memory back."""
    def warm(self, pretokens: Any) -> None:
        """Remembers the ids of pre-tokens (a binary array, in chunks or not, the most frequent first)."""
    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: Any, threads: int, end_id: int | None = None) -> Any:
        """An array large_list<uint32>, one list a text, each ended by `end_id` if given.

        `texts`: a list of str or of bytes, or a string array, in chunks (pyarrow's) or not; they are read in place."""
    def encode_batch_with_starts(self, texts: Any, threads: int, end_id: int | None = None) -> tuple[Any, Any]:
        """The same, and an array large_list<uint64>: the byte at which each token begins in its text."""
    def count_tokens(self, texts: Any, threads: int) -> Any:
        """An array uint64: the number of ids of each text."""
    def decode(self, ids: list[int] | ArrowArray) -> str:
        """The text of the tokens; bytes that are no UTF-8 become U+FFFD. Raises as `decode_bytes`."""
    def decode_bytes(self, ids: list[int] | ArrowArray) -> bytes:
        """The bytes of the tokens, joined. Raises TokenizerError for an id that is not in the vocabulary."""
    def decode_batch(self, ids: Any, threads: int) -> Any:
        """list or large_list of uint16 or uint32 → an array large_binary. An unknown id is named with its list."""
