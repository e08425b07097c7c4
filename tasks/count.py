"""count: documents → exact counts of pre-tokens."""

import hashlib
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from tokenmill.console import Advance, StageSummary, progress
from tokenmill.corpus import Shard, find_shards, read_batches
from tokenmill.counts import Counter, merge, read_counts, write_counts
from tokenmill.layout import COUNTS_FILE, SCRATCH_DIRECTORY
from tokenmill.params import Source
from tokenmill.patterns import steps_of
from tokenmill.pre_tokenizer import pre_tokenizer_of
from tokenmill.units import RunUnits

_PARTS_AT_ONCE = 16  # partial counts held in memory while they are added up


def count(root: Path, source: Source, pattern: str | None, memory_mb_max: int, run_units: RunUnits) -> StageSummary:
    """Counts the pre-tokens of all documents into data/counts/counts.parquet.

    `memory_mb_max`: what one unit's counter may hold. Raises CorpusError, PatternError, CountsError.
    """
    start_s = time.monotonic()
    pre_tokenizer_of(steps_of(pattern))  # a regex that other libraries would read otherwise is refused before any work
    shards = find_shards(root, source.glob)
    with tempfile.TemporaryDirectory(prefix="count-", dir=_scratch(root)) as parts:
        with progress("count", sum(shard.n_bytes for shard in shards) / 1e6, "file MB") as advance:
            do = partial(
                count_unit,
                source=source,
                pattern=pattern,
                memory_mb_max=memory_mb_max,
                parts=Path(parts),
                advance=advance,
            )
            done = run_units("count", do, shards)
        write_counts(_add_up([part for part, _, _ in done]), root / COUNTS_FILE)
    return StageSummary(
        "count",
        "run",
        n_units=len(shards),
        n_documents=sum(n_documents for _, n_documents, _ in done),
        text_mb=sum(text_bytes for _, _, text_bytes in done) / 1e6,
        seconds=time.monotonic() - start_s,
    )


def count_nothing(root: Path) -> StageSummary:
    """Writes an empty table of counts: with a tokenizer that is taken, nothing is learned from counts."""
    write_counts(merge([]), root / COUNTS_FILE)
    return StageSummary("count", "not needed")


def count_unit(
    unit: Shard, source: Source, pattern: str | None, memory_mb_max: int, parts: Path, advance: Advance
) -> tuple[Path, int, int]:
    """Counts one shard into a file of its own; what comes back is that file, the documents and the bytes of text."""
    counter = Counter(pattern, memory_mb_max=memory_mb_max, threads=1)
    n_documents = text_bytes = 0
    for batch in read_batches(unit, source.text_column, source.id_column, source.text_separator):
        counter.update(batch.texts)
        n_documents += len(batch.texts)
        text_bytes += batch.text_bytes
        advance(batch.file_bytes / 1e6)
    part = parts / f"{hashlib.sha256(unit.name.encode()).hexdigest()}.parquet"
    write_counts(counter.finish(), part)
    return part, n_documents, text_bytes


def _add_up(parts: Sequence[Path]) -> pa.Table:
    total = merge([read_counts(part) for part in parts[:_PARTS_AT_ONCE]])
    for start in range(_PARTS_AT_ONCE, len(parts), _PARTS_AT_ONCE):
        total = merge([total, *(read_counts(part) for part in parts[start : start + _PARTS_AT_ONCE])])
    return total


def _scratch(root: Path) -> Path:
    scratch = root / SCRATCH_DIRECTORY
    scratch.mkdir(exist_ok=True)
    return scratch
