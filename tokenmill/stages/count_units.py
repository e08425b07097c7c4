"""count, first part: the documents of a unit → their pre-tokens, counted."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

from tokenmill.config.count_params import BY_SOURCES, Count
from tokenmill.config.source_params import Source
from tokenmill.console import Advance
from tokenmill.corpus.filter import Filters, as_key
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.provenance import Samples
from tokenmill.corpus.quarantine import LeftOut, left_out
from tokenmill.corpus.units import Unit, source_name
from tokenmill.counts.counter import Counter
from tokenmill.counts.table import write_batches
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.unit_content import content
from tokenmill.quantities import number_of
from tokenmill.rounds import Facts, Task
from tokenmill.stages.count_groups import GROUPS_MAX, groups_in, reading_of, refuse_many
from tokenmill.stages.count_sums import SCRATCH_PREFIX, part_name
from tokenmill.storage.scratch import scratch_directory
from tokenmill.storage.unit_store import unit_key
from tokenmill.tokenizer.preparing import Preparation
from tokenmill_reader.shown import size

_ONE = Fraction(1)
_COUNTERS_EXPECTED = 32  # groups of documents in a unit, which share the memory for counts


class CountFacts(Facts, frozen=True):
    """The sums of a unit, and its quarantine. `groups`: for each file of counts, the index of its group of pieces, and the name of
    its group of documents ("" without count.by)."""

    n_documents: int
    text_bytes: int
    left: LeftOut
    groups: list[tuple[int, str]]

    @property
    def n_left_out(self) -> int:
        """The number of documents and pieces in the quarantine."""
        return self.left.n

    def __str__(self) -> str:
        return f"{number_of(self.n_documents, 'document')}, {size(self.text_bytes)} of text"


class CountTask(Task[CountFacts], frozen=True, kw_only=True):
    """Counts the pre-tokens of one unit into one file for each group of its pieces, and of its documents if count.by asks for it.
    With count.superwords, the pre-tokens of that pattern are counted into one more file for each group of pieces.

    `preparation`: what is done to the texts first. `groups`: the groups, as indices of pieces. `filters`: say which documents are
    left out. `samples`: takes texts of the corpus. `kept_mb`: the memory for counts. `scratch`: the folder where counters spill
    what exceeds it.
    """

    source: Source
    params: Count
    preparation: Preparation
    groups: Sequence[Sequence[int]]
    filters: Filters
    samples: Samples
    limits: Limits
    kept_mb: int
    scratch: Path

    def run(self, folder: Path, advance: Advance) -> CountFacts:
        """Writes the counts (see Task)."""
        assert self.unit is not None
        unit, by, superwords = self.unit, self.params.by, self.params.superwords
        to_split = self.preparation.texts_to_split
        pieces_of = {piece: i for i, pieces in enumerate(self.groups) for piece in pieces}
        with scratch_directory(self.scratch, SCRATCH_PREFIX) as own_scratch:
            counters: dict[tuple[int, str], Counter] = {}

            def counter_of(place: tuple[int, str]) -> Counter:
                if place not in counters:
                    refuse_many({place[1], *(name for _, name in counters)}, by)
                    kept_mb = self._kept_mb(unit, len(counters))
                    counters[place] = Counter(self.params.pattern, kept_mb, threads=1, spill_directory=own_scratch)
                return counters[place]

            of_sentences = [
                Counter(
                    superwords,
                    max(1, self.kept_mb // 2 // len(self.groups)),
                    threads=1,
                    spill_directory=own_scratch,
                )
                for _ in (self.groups if superwords is not None else ())
            ]
            if by is None:
                for i in range(len(self.groups)):
                    counter_of((i, ""))
            n_documents = text_bytes = 0
            reading = reading_of(unit, by)
            documents = GoodDocuments(unit, self.source, self.limits, advance, self.filters, reading)
            for batch in documents:
                self.samples.offer(unit.pieces, batch)
                if by is None and len(counters) == 1:
                    counter_of((0, "")).update(to_split(batch.texts))
                else:
                    for piece, name, texts in groups_in(unit, batch, by):
                        counter_of((pieces_of[piece], name)).update(to_split(texts))
                if len(of_sentences) == 1:
                    of_sentences[0].update(batch.texts)
                elif of_sentences:
                    for piece, one in batch.by_piece():
                        of_sentences[pieces_of[piece]].update(one.texts)
                n_documents += len(batch.texts)
                text_bytes += batch.text_bytes
            places = sorted(counters)
            for i, place in enumerate(places):
                write_batches(counters[place].batches(), folder / part_name(i))
            for i, counter in enumerate(of_sentences):
                write_batches(counter.batches(), folder / superwords_name(i))
        return CountFacts(n_documents, text_bytes, left_out(documents.left), places)

    def _kept_mb(self, unit: Unit, n_counters: int) -> int:
        """The memory of one more counter. Groups of a column are not known before, so the first ones share half of the memory, and
        all that may follow the other half."""
        kept_mb = self.kept_mb if self.params.superwords is None else self.kept_mb // 2
        if self.params.by is None:
            return max(1, kept_mb // len(self.groups))
        if self.params.by == BY_SOURCES:
            names = {(i, source_name(unit.pieces[piece].shard)) for i, some in enumerate(self.groups) for piece in some}
            return max(1, kept_mb // len(names))
        return max(1, kept_mb // 2 // (_COUNTERS_EXPECTED if n_counters < _COUNTERS_EXPECTED else GROUPS_MAX))


def superwords_name(group: int) -> str:
    """The name of the file with the counts of count.superwords for one group of a unit's pieces."""
    return f"superwords.{group}.parquet"


def count_keys(
    units: Sequence[Unit],
    params: Count,
    preparation: Preparation,
    by_weight: Mapping[str, Mapping[Fraction, list[int]]],
    filters: Mapping[str, Filters],
) -> dict[str, str]:
    """Each unit's key in the unit store, by unit name. `preparation`: what is done to the texts first. `by_weight`: the groups of
    each unit's pieces. `filters`: those of each unit."""
    is_prepared = preparation != Preparation()
    decides = {
        "code": code_digest("count"),
        "prepared": [asdict(preparation), code_digest("train-vocab")] if is_prepared else None,
        "pattern": params.pattern,
        "by": params.by,
        "superwords": params.superwords,
    }
    return {
        unit.name: unit_key(
            stage="count",
            content=content(unit, with_rows=False),
            groups=list(by_weight[unit.name].values()),
            of_groups=[source_name(piece.shard) for piece in unit.pieces] if params.by == BY_SOURCES else None,
            source=unit.source.reading.as_key(),
            **as_key(filters[unit.name]),
            **decides,
        )
        for unit in units
    }


def groups_of(unit: Unit, weights: Mapping[str, Fraction]) -> dict[Fraction, list[int]]:
    """The pieces of a unit, grouped by the weight of their shards."""
    groups: dict[Fraction, list[int]] = {}
    for i, piece in enumerate(unit.pieces):
        groups.setdefault(weights.get(piece.shard.name, _ONE), []).append(i)
    return groups
