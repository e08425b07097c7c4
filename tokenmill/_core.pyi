"""The compiled core: bytes and integers in, bytes and integers out; no files, no clock, no environment.

Long calls release the GIL, notice Ctrl-C and `interrupt(True)`, and then raise KeyboardInterrupt.
`steps` is a split pattern as the regexes applied one after another: each cuts every piece it is given into its
matches and the gaps between them (tokenizers' behaviour "Isolated"); no steps: each text is one pre-token.
Symbols of training: 0..255 are the bytes in the order of `byte_order()`, from 256 on the learned tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

class ArrowArray(Protocol):
    """A string, large_string, binary or large_binary array without nulls, of any Arrow library."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

SOURCE_HASH: str
"""sha256, in hex, of the crate's sources at the time of compiling (see core/build.rs)."""

def patterns() -> dict[str, list[str]]:
    """The named patterns: name → steps."""

def byte_order() -> bytes:
    """The 256 bytes in the order of GPT-2's byte-to-character table (tokenizers' initial alphabet, sorted)."""

def interrupt(on: bool) -> None:
    """Make every long call, in all threads, stop with KeyboardInterrupt (True), or let them run again (False)."""

def split(steps: Sequence[str], text: str) -> list[str]:
    """The pre-tokens of one text, in order. Raises PatternError."""

@final
class Counter:
    """Counts of pre-tokens."""
    def __init__(self, steps: Sequence[str]) -> None: ...
    def update(self, texts: ArrowArray, threads: int) -> None:
        """Adds every text of the array. Raises PatternError (also when a regex gives up), CountsError, CorpusError."""
    def memory_bytes(self) -> int:
        """What the table of counts holds now."""
    def finish(self) -> ArrowStream:
        """A table `pretoken: binary, count: uint64`, sorted by pretoken bytes; the counter is empty afterwards."""

def train(
    pretokens: ArrowArray,
    counts: Any,
    n_tokens_max: int,
    pair_count_min: int,
    token_bytes_max: int | None,
    forbidden: Sequence[bytes],
    threads: int,
    progress: Callable[[int, int], None] | None,
) -> ArrowStream:
    """A table `left: uint32, right: uint32, token: uint32, count: uint64`, one row a merge, in order.

    Stops after n_tokens_max new tokens, or when no pair counts pair_count_min. A pair whose bytes are in
    `forbidden` is never merged. `progress(tokens_done, merges_done)` is called now and then.
    """

@final
class Encoder:
    """BPE by integer pairs. `vocabulary`: record batch `id: uint32, token: binary`; `merges`: record batch
    `left: uint32, right: uint32, rank: uint32, token: uint32` (ids); lowest rank first, then the leftmost.
    `added`: texts that are tokens wherever they stand, found before splitting, leftmost and longest first."""
    def __init__(self, steps: Sequence[str], vocabulary: Any, merges: Any, added: Any, ignore_merges: bool) -> None: ...
    def limit_cache(self, bytes_max: int) -> None:
        """What each thread may remember of pre-tokens that it met, from now on."""
    def warm(self, pretokens: Any) -> None:
        """Remembers the ids of pre-tokens (a binary array or stream, the most frequent first) for all threads."""
    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: Any, threads: int, end_id: int | None = None) -> Any:
        """An array large_list<uint32>, one list a text, each ended by `end_id` if given.

        `texts`: a list of str or of bytes, or a string array or stream; they are read in place."""
    def encode_batch_with_starts(self, texts: Any, threads: int, end_id: int | None = None) -> tuple[Any, Any]:
        """The same, and an array large_list<uint64>: the byte at which each token begins in its text."""
    def count_tokens(self, texts: Any, threads: int) -> Any:
        """An array uint64: the number of ids of each text."""
    def decode_bytes(self, ids: list[int] | ArrowArray) -> bytes:
        """The bytes of the tokens, joined. Raises TokenizerError for an id that is not in the vocabulary."""
    def decode_batch(self, ids: Any, threads: int) -> Any:
        """list or large_list of uint16 or uint32 → an array large_binary. An unknown id is named with its list."""
