"""Counting pre-tokens. Arrow, which takes 0.2 s and 30 MB, is imported for what needs it alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from tokenmill import _core
from tokenmill.arguments import threads_or_all
from tokenmill.errors import CorpusError
from tokenmill.pretokenizers.patterns import steps_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.arrow_texts import Texts
    from tokenmill.counts.spill import Runs

_SLICE_BYTES = 1 << 26  # text given to the core at a time
_SLICE_TEXTS = 1 << 16  # and texts of a list


class Counter:
    """Counts pre-tokens exactly, in 64 bits, with checked addition.

    `pattern`: a named pattern, a regex, or None: each document is one pre-token. `memory_mb_max`: what counting may hold, in
    MiB, beside the texts; what is more is sorted and spilled to files in a directory of the counter's own in
    `spill_directory` (None: the system's place for temporary files), which is removed when the counter is finished or gone.
    `threads`: None takes all cores. Neither changes a count.

    `approximate_error`: counts approximately, in the order of the texts, in one thread and without files (lossy counting,
    Manku and Motwani 2002). Of n pre-tokens counted, a count that is kept is too low by at most `approximate_error` × n
    (`missed_max` says how much it can be), and every pre-token that occurs more often than that is kept.

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
        approximate_error: float | None = None,
    ) -> None:
        if memory_mb_max < 1:
            raise ValueError(f"memory_mb_max: found {memory_mb_max}; expected 1 or more.")
        if approximate_error is not None and not 0 < approximate_error < 1:
            raise ValueError(f"approximate_error: found {approximate_error}; expected more than 0 and less than 1.")
        self.steps: tuple[str, ...] = steps_of(pattern)
        self._memory_bytes = memory_mb_max << 20
        self._spilled = _Spilled(None if spill_directory is None else Path(spill_directory))
        self._counter = _core.Counter(
            self.steps,
            threads_or_all(threads),
            self._memory_bytes // 8 * 7,  # the rest is for the batches on their way to a file
            self._spilled.write,
            None if approximate_error is None else math.ceil(1 / approximate_error),
        )

    def update(self, texts: Texts) -> None:
        """Counts documents: a list of str or bytes, or any Arrow string array or stream. A str keeps the UTF-8 that is made of it.

        Raises CorpusError for a text that is null or no UTF-8: the slice of the texts that it is in, as the message says, is
        not counted, and all before it is. Raises PatternError when the regex gives up on a text, CountsError for a pre-token
        that is longer than `memory_mb_max` allows, OSError when a run cannot be written: then the counter is of no more use.
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

    @property
    def missed_max(self) -> int:
        """By how much a count may be too low; 0 when counting is exact. To be asked before the counter is finished."""
        return self._counter.missed_max()

    @property
    def n_runs(self) -> int:
        """How many runs were spilled so far."""
        return len(self._spilled.runs.runs) if self._spilled.runs else 0

    def finish(self) -> pa.Table:
        """A table `pretoken: binary, count: uint64`, sorted by pretoken, in one or more chunks; the counter is empty then."""
        import pyarrow as pa

        from tokenmill.counts.spill import SCHEMA

        return pa.Table.from_batches(self.batches(), SCHEMA)

    def finish_to(self, path: Path | str) -> None:
        """Writes what `finish` gives as `write_counts` does, without having all of it in memory."""
        from tokenmill.counts.table import write_batches
        from tokenmill.storage.atomic import write_atomic

        with write_atomic(Path(path)) as partial:
            write_batches(self.batches(), partial)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of `finish`, batch for batch; the counter is empty afterwards, also where that ends early."""
        runs = self._spilled.runs
        if runs is None:
            try:
                yield from iter(self._counter.drain, None)
            finally:
                self._counter.forget()
            return
        from tokenmill.counts.spill import sum_of_runs

        try:
            # What the tables still hold becomes one more run, so that nothing is held while runs are added up.
            for batch in iter(lambda: self._counter.drain(for_run=True), None):
                runs.write(-1, batch)
            runs.write(-1, None)
            yield from sum_of_runs(runs.runs, runs.directory, self._memory_bytes // 2)
        finally:
            self._counter.forget()
            runs.close()
            self._spilled.runs = None

    def source(self) -> tuple[Any, Any | None]:
        """What was counted as `_core.train` takes it, which empties the counter. A table is made only of what was spilled."""
        if self._spilled.runs is None:
            return self._counter, None
        table = self.finish()
        return table["pretoken"], table["count"]


class _Spilled:
    """The runs of a counter, once there are some. The core's counter, which writes them, holds this and not the counter."""

    def __init__(self, directory: Path | None) -> None:
        self.runs: Runs | None = None
        self._directory = directory
        self._lock = Lock()

    def write(self, run: int, batch: pa.RecordBatch | None) -> None:
        """As `Runs.write`."""
        with self._lock:
            if self.runs is None:
                from tokenmill.counts.spill import Runs

                self.runs = Runs(self._directory)
        self.runs.write(run, batch)


def _slices(texts: Texts) -> Iterator[Any]:
    """The texts, not so many at a time that what the core notes of each would be much; those of a list as they are."""
    if isinstance(texts, list | tuple):
        for start in range(0, len(texts), _SLICE_TEXTS):
            some = texts[start : start + _SLICE_TEXTS]
            yield some if isinstance(some, list) else list(some)
        return
    from tokenmill.arrow_texts import text_chunks

    for chunk in text_chunks(texts):
        n_rows = max(1, len(chunk) * _SLICE_BYTES // max(chunk.nbytes, 1))
        for start in range(0, len(chunk), n_rows):
            yield chunk.slice(start, n_rows)
