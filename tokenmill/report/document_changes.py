"""Compares the documents of two datasets by their document indexes, without reading a text.

Documents are matched in three rounds: those of the same id, text and split, then of the same id and text, then of the same id. What
is left was removed or added. A document without an id is matched by its text alone. Each of two equal documents is matched once.

Memory does not grow with the datasets. Documents of files that have the same in both are only counted. Of the others, the columns
that are compared are read by row groups, ids and texts are halves of their sha256, and a million documents are grouped at a time:
those whose keys have the same remainder. With 10 million documents in each dataset, all in other files, that takes 20 readings of
both indexes, some minutes, and 0.3 GB.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.checks.manifest_checks import wrong_file
from tokenmill.corpus.kinds import kind_of
from tokenmill.corpus.text_digests import text_digests, text_keys
from tokenmill.dataset.index_rows import index_rows
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.tables import DOCUMENTS_FILE
from tokenmill.errors import ValidationError
from tokenmill_reader.checked_parquet import parquet_file

_ROWS_MAX = 1 << 20
_KEY_BYTES = 16  # of a sha256: that two of 10 million texts agree in them by chance has the probability 10^-25
_N_EXAMPLES = 3
_SIDES = ("one", "other")
_ROUNDS = {"unchanged": ["id", "text", "split"], "moved": ["id", "text"], "changed": ["id"]}


class IndexedDocuments(NamedTuple):
    """A dataset: its manifest, and the path of its document index."""

    manifest: Manifest
    path: Path


@dataclass
class DocumentChanges:
    """How many documents are the same in two datasets, and how many are not. `unchanged`: same id, text and split. `moved`: same id
    and text, another split; None unless both have splits. `changed`: same id, another text; None without ids, where texts alone are
    compared. `removed`, `added`: in the first or the second dataset alone. `examples`: the first documents of each kind of
    difference, with their places in both datasets, None in one that lacks them."""

    unchanged: int = 0
    moved: int | None = 0
    changed: int | None = 0
    removed: int = 0
    added: int = 0
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, int]:
        """The known numbers by their names."""
        return {name: n for name, n in vars(self).items() if isinstance(n, int)}

    @property
    def n_differences(self) -> int:
        """The number of documents that are not the same in both."""
        return sum(self.numbers.values()) - self.unchanged


def document_changes(one: IndexedDocuments, other: IndexedDocuments) -> DocumentChanges:
    """What became of the documents of `one` in `other`. Raises ValidationError for an index that is missing or damaged."""
    sides = (one, other)
    for side in sides:
        _refuse_wrong(side)
    has_ids = all(side.manifest.has_ids for side in sides)
    has_splits = all(side.manifest.files is not None and side.manifest.files.splits for side in sides)
    equal = _equal_files(one.manifest, other.manifest)
    files = [(shard.name, shard.n_documents) for side in sides for shard in side.manifest.shards]
    n_equal = sum(n_documents for name, n_documents in files if name in equal) // 2
    n, first = Counter({"unchanged": n_equal}), defaultdict[str, list[dict[str, int]]](list)
    n_parts = (sum(n_documents for _, n_documents in files) - 2 * n_equal) // _ROWS_MAX + 1
    for part in range(n_parts):
        rest = pa.concat_tables(
            _documents(side, name, equal, (part, n_parts), has_ids, has_splits)
            for side, name in zip(sides, _SIDES, strict=True)
        )
        for kind, keys in _ROUNDS.items():
            matched, rest = _matched(rest, keys)
            n[kind] += pc.sum(matched["n"]).as_py() or 0
            first[kind] += _first(matched, _SIDES)
        for kind, name in (("removed", "one"), ("added", "other")):
            n[kind] += pc.sum(rest[f"n_{name}"]).as_py() or 0
            first[kind] += _first(rest.filter(pc.greater(rest[f"n_{name}"], 0)), (name,))
    del first["unchanged"]
    return DocumentChanges(
        n["unchanged"],
        n["moved"] if has_splits else None,
        n["changed"] if has_ids else None,
        n["removed"],
        n["added"],
        {
            kind: [_example(sides, rows) for rows in sorted(some, key=_row)[:_N_EXAMPLES]]
            for kind, some in first.items()
            if some
        },
    )


def _refuse_wrong(side: IndexedDocuments) -> None:
    entry = next((table for table in side.manifest.tables if table.name == DOCUMENTS_FILE), None)
    if entry is None or not side.path.exists():
        raise ValidationError(
            side.path,
            "expected the dataset's document index; nothing is there.",
            "Copy the folder tables beside the dataset, or make it with `tokenmill build`.",
        )
    if wrong := wrong_file(side.path, entry.n_bytes, entry.sha256):
        raise ValidationError(side.path, f"{wrong}.", "Copy the tables of this dataset beside it again.")


def _equal_files(one: Manifest, other: Manifest) -> Set[str]:
    """The names of files that have the same documents in both datasets, with the same ids and splits."""
    if _drawing(one) != _drawing(other):
        return set()
    origins, others = _origins(one), _origins(other)
    return {name for name in origins.keys() & others.keys() if origins[name] & others[name]}


def _drawing(manifest: Manifest) -> Any:
    """What decides the split of a document, in whose order the shares count, too."""
    return manifest.files and ([*manifest.files.splits.items()], manifest.files.split_group)


def _origins(manifest: Manifest) -> dict[str, Set[Any]]:
    """What the documents of each file are: those of its unit, and where none was left out, all of these rows of these inputs, as
    this version of tokenmill reads them, whatever the tokenizer."""
    sha256, sources = (
        {input_file.name: input_file.sha256 for input_file in manifest.inputs},
        manifest.document_sources(),
    )
    origins: dict[str, Set[Any]] = {}
    for shard in manifest.shards:
        origins[shard.name] = {shard.unit}
        if all(rows.n_bad == 0 and rows.n_dropped == 0 and rows.name in sources for rows in shard.rows):
            read = [(sources[rows.name].reading, sources[rows.name].format, sha256[rows.name]) for rows in shard.rows]
            origins[shard.name] |= {(manifest.engine, str(shard.rows), str(read))}
    return origins


def _documents(
    side: IndexedDocuments, name: str, left_out: Set[str], part: tuple[int, int], has_ids: bool, has_splits: bool
) -> pa.Table:
    """The documents of one part, a remainder and a divisor of keys, as rows to match: keys, and for each of both datasets how many
    they are and their first row in its index. `name`: the dataset that has them."""
    sources = side.manifest.document_sources()
    plain = [
        input_name
        for input_name, of in sources.items()
        if of.format is None and (kind := kind_of(input_name)) and not kind.has_columns
    ]
    columns = ["sha256", *["id", "shard"] * has_ids, *["split"] * has_splits]
    tables, n_before = [_no_rows()], 0
    try:
        with parquet_file(side.path) as file:
            for group in range(file.num_row_groups):  # iter_batches would keep the whole file in memory
                files = file.read_row_group(group, columns=["file"])["file"]
                places = pa.array(np.arange(n_before, n_before := n_before + len(files)))
                is_compared = pc.invert(pc.is_in(files, pa.array(left_out, pa.string())))
                if not pc.any(is_compared).as_py():
                    continue
                rows = file.read_row_group(group, columns=columns).append_column("row", places)
                for batch in rows.filter(is_compared).combine_chunks().to_batches():
                    id = batch["sha256"]
                    if has_ids:
                        has_none = pc.is_in(batch["shard"], pa.array(plain, pa.string()))  # their rows stand as ids
                        id = pc.if_else(has_none, id, text_digests(batch["id"].cast(pa.large_string())))
                    wanted = pa.array(text_keys(id) % np.uint64(part[1]) == part[0])
                    tables.append(_rows(batch.filter(wanted), id.filter(wanted), name, has_splits))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ValidationError(
            side.path, f"cannot be read: {error}.", "`tokenmill verify` says what is wrong."
        ) from None
    return pa.concat_tables(tables)


_KEY = pa.binary(_KEY_BYTES)
_SHAPE = {"id": _KEY, "text": _KEY, "split": pa.string()} | {
    f"{what}_{name}": pa.int64() for what in ("n", "row") for name in _SIDES
}


def _no_rows() -> pa.Table:
    return pa.schema(list(_SHAPE.items())).empty_table()


def _rows(batch: pa.RecordBatch, id: pa.Array, name: str, has_splits: bool) -> pa.Table:
    columns = {
        "id": pc.binary_slice(id, 0, _KEY_BYTES),
        "text": pc.binary_slice(batch["sha256"], 0, _KEY_BYTES),
        "split": batch["split"] if has_splits else pa.repeat("", len(batch)),
    }
    for one in _SIDES:
        columns[f"n_{one}"] = pa.repeat(int(one == name), len(batch))
        columns[f"row_{one}"] = batch["row"] if one == name else pa.nulls(len(batch), pa.int64())
    return pa.table({column: columns[column] for column in _SHAPE})


def _matched(rows: pa.Table, keys: list[str]) -> tuple[pa.Table, pa.Table]:
    """Pairs of documents of both datasets that have the same keys, `n` of each, and the rows that are left."""
    sums = {
        column: "sum" if column.startswith("n_") else "min" for column in _SHAPE if column not in _ROUNDS["unchanged"]
    }
    grouped = rows.group_by(keys, use_threads=False).aggregate(list(sums.items()))  # threads would each hold the keys
    n = pc.min_element_wise(*(grouped[f"n_{name}_sum"] for name in _SIDES))
    found = {key: grouped[key] for key in keys} | {column: grouped[f"{column}_{how}"] for column, how in sums.items()}
    found |= {f"n_{name}": pc.subtract(found[f"n_{name}"], n) for name in _SIDES}
    left = pa.table(found)
    is_left = pc.greater(pc.add(left["n_one"], left["n_other"]), 0)
    return left.append_column("n", n).filter(pc.greater(n, 0)), left.filter(is_left)


def _first(rows: pa.Table, names: Sequence[str]) -> list[dict[str, int]]:
    """The rows of the first documents in the indexes of these datasets, in the order of the last of these."""
    order = [(f"row_{names[-1]}", "ascending")]
    first = rows.take(pc.select_k_unstable(rows, _N_EXAMPLES, sort_keys=order))
    columns = (first[f"row_{name}"].to_pylist() for name in names)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _row(rows: Mapping[str, int]) -> int:
    return [*rows.values()][-1]


def _example(sides: Sequence[IndexedDocuments], rows: Mapping[str, int]) -> dict[str, Any]:
    """A document's id, place and split in each dataset, by its rows in the indexes."""
    example: dict[str, Any] = dict.fromkeys(_SIDES)
    for name, side in zip(_SIDES, sides, strict=True):
        if name in rows:
            [row] = index_rows(side.path, range(rows[name], rows[name] + 1)).to_pylist()
            example[name] = {key: row[key] for key in ("id", "shard", "row", "split") if key in row}
    return example
