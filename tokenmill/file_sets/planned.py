"""Plans the file sets of a dataset: which units make which part of which set, from the units' document indexes alone."""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import ceil

from tokenmill.config.chat_params import Turns
from tokenmill.corpus.shard_ranges import ends_chunk
from tokenmill.dataset.document_index import read_unit_index
from tokenmill.dataset.entries import Files, MixedSource
from tokenmill.file_sets.items import Choice, EncodedUnit, Part
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.order import Order, order_key


@dataclass(frozen=True)
class PlannedSet:
    """The items of one split in one order, for every format. `source`: the only source; None: all. `epoch`: None if there is only
    one. `parts`: consecutive units, pass by pass if documents occur more than once. `mixture`: the totals of each named source."""

    split: str | None
    source: str | None
    epoch: int | None
    parts: Sequence[Part]
    mixture: Sequence[MixedSource]

    @property
    def name(self) -> str:
        """The folder of the set in the folder of a format; "" if there is only one set."""
        epoch = None if self.epoch is None else f"epoch-{self.epoch}"
        return "/".join(one for one in (self.split, self.source, epoch) if one)

    def order(self, n_items: int, seed: int, tokens_digest: str) -> Order:
        """The shuffled order of its items. `tokens_digest`: see Manifest.tokens_digest."""
        return Order(n_items, order_key(tokens_digest, seed, self.epoch or 0, self.split or ""))


def plan_sets(units: Sequence[EncodedUnit], files: Files, id_bytes: int, threads: int) -> list[PlannedSet]:
    """The sets of a dataset, split by split and epoch by epoch; if nothing is shuffled, each named source has sets of its own.
    `id_bytes`: the size of an id in the files.

    A part has units with up to `files.file_bytes` of ids. Its ends depend only on the names of nearby units, so most parts stay the
    same when units come or go. In the first split, a named source has the passes of `files.epochs`: the parts of each whole pass
    are equal.
    """
    epochs = {name: Fraction(text) for name, text in files.epochs.items()}
    n_epochs = files.shuffle.epochs if files.shuffle else 1
    sources: list[str | None] = [None] if files.shuffle or not epochs else list(epochs)
    planned = []
    with ThreadPoolExecutor(threads, thread_name_prefix="plan") as pool:
        for i, split in enumerate(list(files.splits) or [None]):
            wanted = epochs if i == 0 else {}
            for source in sources:
                some = [unit for unit in units if source in (None, unit.source)]
                choice = Choice(split, files.splits, wanted)
                names = [name for name in epochs if source in (None, name)]
                parts, mixture = _passes(some, choice, names, files.file_bytes, id_bytes, pool)
                planned += [
                    PlannedSet(split, source, epoch if n_epochs > 1 else None, parts, mixture)
                    for epoch in range(n_epochs)
                ]
    return planned


def documents_shape(
    tokenizer: Tokenizer, begin_id: int | None, end_id: int | None, has_names: bool, turns: Turns | None = None
) -> Shape:
    """The shape of a dataset's documents. `turns`: encode.chat.turns of conversations; None for texts."""
    is_pair = turns == "pair"
    return Shape(
        tokenizer.id_max, tokenizer.digest, begin_id, end_id, has_names, has_mask=turns is not None, is_pair=is_pair
    )


def shape_of(files: Files, documents: Shape) -> Shape:
    """The shape of the items of the sets, given that of their documents."""
    if files.pack is None or files.pack.output == "index":
        return documents
    return documents.packed(files.pack.length, files.pack.labels)


def _passes(
    units: Sequence[EncodedUnit], every: Choice, names: Sequence[str], file_bytes: int, id_bytes: int, pool: Executor
) -> tuple[list[Part], list[MixedSource]]:
    """The parts of all passes over these units, and the totals of each source in `names`. `every`: the choice of the first pass."""
    n_documents, n_tokens = Counter[str](), Counter[str]()
    parts: list[Part] = []
    whole: dict[str, tuple[int, int]] = {}  # the sums of units in a whole pass, equal in each
    for number in range(max((ceil(epoch) for epoch in every.epochs.values()), default=1)):
        choice = replace(every, number=number)
        chosen_units = [unit for unit in units if every.epochs_of(unit) > number]
        unknown = [unit for unit in chosen_units if unit.file not in whole or every.epochs_of(unit) < number + 1]
        sums_of = whole | dict(
            zip((unit.file for unit in unknown), pool.map(partial(_sums, choice), unknown), strict=True)
        )
        whole |= {unit.file: sums_of[unit.file] for unit in chosen_units if every.epochs_of(unit) >= number + 1}
        sums = [sums_of[unit.file] for unit in chosen_units]
        parts += _parts(chosen_units, sums, choice, file_bytes, id_bytes)
        for unit, (more_documents, more_tokens) in zip(chosen_units, sums, strict=True):
            n_documents[unit.source] += more_documents
            n_tokens[unit.source] += more_tokens
    mixture = [
        MixedSource(
            split=every.split,
            source=name,
            epochs=str(every.epochs.get(name, 1)),
            n_documents=n_documents[name],
            n_tokens=n_tokens[name],
        )
        for name in names
    ]
    return parts, mixture


def _sums(choice: Choice, unit: EncodedUnit) -> tuple[int, int]:
    """The number of chosen documents of a unit, and the number of their tokens."""
    index = read_unit_index(unit.index, ["n_tokens", "sha256", "group"])
    is_chosen = choice.of(unit, index)
    return int(is_chosen.sum()), int(index["n_tokens"].to_numpy()[is_chosen].sum())


def _parts(
    units: Sequence[EncodedUnit], sums: Sequence[tuple[int, int]], choice: Choice, file_bytes: int, id_bytes: int
) -> Iterator[Part]:
    held: list[EncodedUnit] = []
    n_documents = n_tokens = 0
    for unit, (more_documents, more_tokens) in zip(units, sums, strict=True):
        if not more_documents:
            continue
        if held and (n_tokens + more_tokens) * id_bytes > file_bytes:
            yield Part(held, choice, n_documents, n_tokens)
            held, n_documents, n_tokens = [], 0, 0
        held.append(unit)
        n_documents, n_tokens = n_documents + more_documents, n_tokens + more_tokens
        is_half_full = 2 * n_tokens * id_bytes >= file_bytes
        if is_half_full and ends_chunk(zlib.crc32(unit.file.encode()), more_tokens * id_bytes, file_bytes):
            yield Part(held, choice, n_documents, n_tokens)
            held, n_documents, n_tokens = [], 0, 0
    if held:
        yield Part(held, choice, n_documents, n_tokens)
