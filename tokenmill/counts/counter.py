"""Counting pre-tokens. pyarrow takes 0.2 s and 30 MB to import, so it is imported only where it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from tokenmill import _core
from tokenmill.arguments import threads_or_all
from tokenmill.errors import CorpusError
from tokenmill.pretokenizers.patterns import steps_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.arrow_texts import Texts
    from tokenmill.counts.spill import Runs

_SLICE_BYTES = 1 << 26  # Arrow text, or characters of an iterable, passed to the core in one call
_SLICE_TEXTS = 1 << 16  # elements of a list or an iterable passed to the core in one call
_REST, _KEPT = -1, -2  # runs that the core does not number: what is in memory at the end, and what `table` gave


class Counter:
    """Counts pre-tokens exactly, in 64 bits, with checked addition.

    `pattern`: a named pattern, a regex, or None, which makes each document one pre-token. `memory_mb_max`: the memory for
    counting, in MB (10^6 bytes), beside the texts. Counts beyond it are sorted and spilled to files in the counter's own directory
    within `spill_directory` (None: the system's temporary directory). That directory is removed when the counter is finished or
    garbage-collected. `threads`: None uses all cores. Neither memory nor threads change a count.

    Raises PatternError.

    >>> counter = Counter(pattern="gpt2")
    >>> counter.update(["the cat", "the dog"])
    >>> counter.finish().to_pydict()
    {'pretoken': [b' cat', b' dog', b'the'], 'count': [1, 1, 2]}
    """

    def __init__(
        self,
        pattern: str | None,
        memory_mb_max: int = 1024,
        threads: int | None = None,
        spill_directory: Path | str | None = None,
    ) -> None:
        if memory_mb_max < 1:
            raise ValueError(f"memory_mb_max: found {memory_mb_max}; expected 1 or more.")
        self.pattern = pattern
        self.steps: tuple[str, ...] = steps_of(pattern)
        self._n_texts = 0
        self._kept: pa.Table | None = None
        self._memory_bytes = memory_mb_max * 10**6
        self._spilled = _Spilled(None if spill_directory is None else Path(spill_directory))
        self._counter = _core.Counter(
            self.steps,
            threads_or_all(threads),
            self._memory_bytes // 8 * 7,  # the remaining eighth is for batches on their way to a file
            self._spilled.write,
        )

    def update(self, texts: Texts | Iterable[str] | Iterable[bytes]) -> None:
        """Counts documents: any iterable of str or bytes, such as a list, a generator or a numpy array, or any Arrow string
        array or stream. Of an iterable a part is held at a time. A str caches its UTF-8 form.

        Raises CorpusError for a text that is null or not UTF-8. The message names the slice of texts that was not counted;
        all slices before it were. Raises PatternError if the regex gives up on a text, CountsError for a pre-token longer than
        `memory_mb_max` allows, and OSError if a run cannot be written; the counter cannot be used after that.
        """
        n_texts = 0
        for piece in _slices(texts):
            try:
                self._counter.update(piece)
            except CorpusError as error:
                if not n_texts:
                    raise
                raise CorpusError(f"from text {n_texts} on: {error}") from None
            n_texts += len(piece)
            self._n_texts += len(piece)

    @property
    def n_runs(self) -> int:
        """The number of runs spilled so far."""
        return len(self._spilled.runs.runs) if self._spilled.runs else 0

    def finish(self) -> pa.Table:
        """A table `pretoken: binary, count: uint64`, sorted by pretoken, in one or more chunks. It empties the counter."""
        import pyarrow as pa

        from tokenmill.counts.spill import SCHEMA

        return pa.Table.from_batches(self.batches(), SCHEMA)

    def finish_to(self, path: Path | str) -> None:
        """Writes the table of `finish` to a file, as `write_counts` does, without holding all of it in memory."""
        from tokenmill.counts.table import write_batches
        from tokenmill.storage.atomic import write_atomic

        with write_atomic(Path(path)) as partial:
            write_batches(self.batches(), partial)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of `finish` in batches. The counter is empty afterwards, even if the iteration stops early."""
        kept, self._kept, self._n_texts = self._kept, None, 0
        for batch in (*kept.to_batches(), None) if kept else ():
            self._spilled.write(_KEPT, batch)
        runs = self._spilled.runs
        if runs is None:
            try:
                yield from iter(self._counter.drain, None)
            finally:
                self._counter.forget()
            return
        from tokenmill.counts.spill import sum_of_runs

        try:
            # Counts still in memory become one more run, so that they take no memory while the runs are added up.
            for batch in iter(lambda: self._counter.drain(for_run=True), None):
                runs.write(_REST, batch)
            runs.write(_REST, None)
            yield from sum_of_runs(runs.runs, runs.directory, self._memory_bytes // 2)
        finally:
            self._counter.forget()
            runs.close()
            self._spilled.runs = None

    def table(self) -> pa.Table:
        """The table of `finish`. The counter keeps its counts, in this table."""
        n_texts, self._kept = self._n_texts, self.finish()
        self._n_texts = n_texts
        return self._kept

    def __repr__(self) -> str:
        return f"<Counter of {self._n_texts:,} texts, pattern {self.pattern!r}>"


def count_phrases(counter: Counter, neighbours: _core.Neighbours, texts: Any, counts: Any, floor: int) -> None:
    """Counts the phrases of texts in place of their pre-tokens; see `_core.Neighbours.count_phrases`. Raises as `update` does."""
    neighbours.count_phrases(texts, counts, floor, counter._counter)


class _Spilled:
    """The runs of a counter, if any. The core's counter writes them; it refers to this object and not to the Counter, so that
    there is no reference cycle."""

    def __init__(self, directory: Path | None) -> None:
        self.runs: Runs | None = None
        self._directory = directory
        self._lock = Lock()

    def write(self, run: int, batch: pa.RecordBatch | None) -> None:
        """Writes a batch to the run; see `Runs.write`."""
        with self._lock:
            if self.runs is None:
                from tokenmill.counts.spill import Runs

                self.runs = Runs(self._directory)
        self.runs.write(run, batch)


def _slices(texts: Texts | Iterable[str] | Iterable[bytes]) -> Iterator[Any]:
    """The texts in slices, which limit the core's notes on each text. The elements are passed on unchanged."""
    if isinstance(texts, list | tuple):
        for start in range(0, len(texts), _SLICE_TEXTS):
            some = texts[start : start + _SLICE_TEXTS]
            yield some if isinstance(some, list) else list(some)
        return
    is_arrow = hasattr(texts, "__arrow_c_stream__") or hasattr(texts, "__arrow_c_array__")
    if isinstance(texts, Iterable) and not isinstance(texts, str | bytes | Mapping) and not is_arrow:
        yield from _batched(texts)
        return
    import pyarrow as pa

    from tokenmill.arrow_texts import text_chunks

    for chunk in text_chunks(cast("Texts", texts)):
        # Before pyarrow 24, a view has no nbytes.
        n_bytes = chunk.get_total_buffer_size() if pa.types.is_string_view(chunk.type) else chunk.nbytes
        n_rows = max(1, len(chunk) * _SLICE_BYTES // max(n_bytes, 1))
        for start in range(0, len(chunk), n_rows):
            yield chunk.slice(start, n_rows)


def _batched(texts: Iterable[Any]) -> Iterator[list[Any]]:
    batch, n_characters = list[Any](), 0
    for text in texts:
        batch.append(text)
        n_characters += len(text) if isinstance(text, str | bytes) else 0  # the core refuses any other
        if len(batch) == _SLICE_TEXTS or n_characters >= _SLICE_BYTES:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch
