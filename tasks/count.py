"""count: documents → exact counts of pre-tokens."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa

from tokenmill.code import code_digest
from tokenmill.console import Advance, StageSummary, progress
from tokenmill.counts import Counter, merge, read_counts, write_counts
from tokenmill.cutting import Unit
from tokenmill.layout import COUNTS_FILE
from tokenmill.params import Source
from tokenmill.patterns import steps_of
from tokenmill.pre_tokenizer import pre_tokenizer_of
from tokenmill.quarantine import Documents, LeftOut, check_limit, left_out, sifted
from tokenmill.unit_store import unit_key
from tokenmill.workshop import Workshop, content

_PARTS_AT_ONCE = 16  # partial counts held in memory while they are added up
_PART_FILE = "counts.parquet"


class CountFacts(msgspec.Struct, frozen=True):
    """What a unit holds, and what was left out of it."""

    n_documents: int
    text_bytes: int
    left: LeftOut


def count(source: Source, pattern: str | None, memory_mb_max: int, workshop: Workshop) -> StageSummary:
    """Counts the pre-tokens of all documents into data/counts/counts.parquet.

    `memory_mb_max`: what one unit's counter may hold. Raises CorpusError, PatternError, CountsError, UnitsError.
    """
    start_s = time.monotonic()
    pre_tokenizer_of(steps_of(pattern))  # a regex that other libraries would read otherwise is refused before any work
    units = workshop.corpus(source).units
    decides = {"code": code_digest("count"), "pattern": pattern, "source": source.reading()}
    keys = {unit.name: unit_key(stage="count", content=content(unit, with_rows=False), **decides) for unit in units}
    with progress("count", sum(unit.n_bytes for unit in units) / 1e6, "file MB") as advance:
        do = partial(count_unit, source=source, pattern=pattern, memory_mb_max=memory_mb_max, advance=advance)
        done = workshop.finish("count", do, units, keys, CountFacts, lambda facts: facts.left.fits(source))
    n_documents = sum(facts.n_documents for _, facts in done)
    check_limit(units, [facts.left for _, facts in done], n_documents, source)
    write_counts(_add_up([folder / _PART_FILE for folder, _ in done]), workshop.root / COUNTS_FILE)
    return StageSummary(
        "count",
        "run",
        n_units=len(units),
        n_documents=n_documents,
        text_mb=sum(facts.text_bytes for _, facts in done) / 1e6,
        seconds=time.monotonic() - start_s,
    )


def count_unit(
    unit: Unit, directory: Path, source: Source, pattern: str | None, memory_mb_max: int, advance: Advance
) -> CountFacts:
    """Counts one unit into a file in `directory`."""

    def counted(documents: Iterator[Documents]) -> tuple[int, int]:
        counter = Counter(pattern, memory_mb_max=memory_mb_max, threads=1)
        n_documents = text_bytes = 0
        for _, batch in documents:
            counter.update(batch.texts)
            n_documents += len(batch.texts)
            text_bytes += batch.text_bytes
            advance(batch.file_bytes / 1e6)
        write_counts(counter.finish(), directory / _PART_FILE)
        return n_documents, text_bytes

    (n_documents, text_bytes), left = sifted(unit, source, counted)
    return CountFacts(n_documents, text_bytes, left_out(left))


def _add_up(parts: Sequence[Path]) -> pa.Table:
    total = merge([read_counts(part) for part in parts[:_PARTS_AT_ONCE]])
    for start in range(_PARTS_AT_ONCE, len(parts), _PARTS_AT_ONCE):
        total = merge([total, *(read_counts(part) for part in parts[start : start + _PARTS_AT_ONCE])])
    return total
