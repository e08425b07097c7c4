"""The columns of `keep_columns`: read beside a unit's documents, and typed once all units are there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config.sources import DocumentSource, Reading
from tokenmill.corpus.kept_values import maker_of_values
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.units import Unit
from tokenmill.dataset.beside import Beside
from tokenmill.errors import CorpusError
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.regular_files import read

KEPT = pa.field("kept", pa.large_string(), nullable=False)
"""The column of a unit's document index with the values of each document, as `maker_of_values` writes them."""

KINDS_FILE = "kept.json"
"""The file in a unit's folder with the kinds of values of each column, and a shard that has them."""

_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "bool": pa.bool_()}
_KINDS = {str: "string", int: "integer", bool: "bool", list: "number"}

Kinds = dict[str, dict[str, str]]
"""For each column, the kinds of its values, and for each kind the name of a shard with such a value."""


class KeptColumns:
    """The kept values of a unit's documents, and their kinds so far. `kinds`: see Kinds."""

    def __init__(self, unit: Unit, limits: Limits) -> None:
        names = unit.source.keep_columns
        self.kinds: Kinds = {name: {} for name in names}
        self._unit = unit
        reading = kept_reading(unit.source)
        advice = f"Set {unit.source.section}.keep_columns to columns that every document has, or to []."
        self._beside = Beside(unit, reading, _values, limits, ", ".join(map(repr, names)), advice)

    def of(self, batch: Batch) -> Iterator[pa.LargeStringArray]:
        """The values of each document of a batch, in order, some at a time. Raises CorpusError for a document without them."""
        start = 0
        for values in self._beside.of(batch):
            for i, row in enumerate(_decoded(values), start):
                for kinds, value in zip(self.kinds.values(), row, strict=True):
                    if value is not None and (kind := _KINDS[type(value)]) not in kinds:
                        kinds[kind] = self._unit.pieces[batch.piece(i)].shard.name
            start += len(values)
            yield values


def kept_of(unit: Unit, limits: Limits) -> KeptColumns | None:
    """Reads the kept columns of a unit; None if its source keeps none."""
    return KeptColumns(unit, limits) if unit.source.keep_columns else None


def kept_reading(source: DocumentSource) -> Reading:
    """How the kept columns of a source are read."""
    return replace(source.reading, id_column=None, kept=source.keep_columns)


def write_kinds(kinds: Kinds, folder: Path) -> None:
    """Writes the kinds of a unit's values into its folder."""
    with write_atomic(folder / KINDS_FILE) as path:
        path.write_bytes(msgspec.json.encode(kinds))


def kept_types(folders: Iterable[Path]) -> dict[str, pa.DataType]:
    """The columns that the document index keeps of the units in these folders, in order, with their types. A column without a
    value is one of strings. Raises CorpusError for values of several types; integers and other numbers are numbers."""
    of_column: Kinds = {}
    for folder in folders:
        if (path := folder / KINDS_FILE).exists():
            for name, kinds in msgspec.json.decode(read(path), type=Kinds).items():
                of_column[name] = kinds | of_column.get(name, {})
    return {name: _type(name, kinds) for name, kinds in of_column.items()}


def _type(name: str, kinds: Mapping[str, str]) -> pa.DataType:
    if kinds.keys() <= {"integer", "number"}:
        kinds = {"number": ""} if "number" in kinds else kinds
    if len(kinds) > 1:
        (one, first), (other, second), *_ = sorted(kinds.items())
        raise CorpusError(
            f"column {name!r}",
            f"expected values of one type; found {one}s, as in {first}, and {other}s, as in {second}.",
            "Convert the column in the files, or take it out of source.keep_columns.",
        )
    return _TYPES[next(iter(kinds), "string")]


def kept_values(
    kept: pa.Array | None, names: Sequence[str], types: Mapping[str, pa.DataType], n_rows: int
) -> dict[str, pa.Array]:
    """The typed columns of some documents. `kept`: their values in the index of a unit, which has the columns `names`; None: null
    for each. Raises CorpusError for an integer that is no exact number of 64 bits."""
    columns = {name: pa.nulls(n_rows, type) for name, type in types.items()}
    if kept is None:
        return columns
    for name, values in zip(names, zip(*_decoded(kept), strict=True), strict=False):
        plain: list[Any] = [float.fromhex(value[0]) if isinstance(value, list) else value for value in values]
        if types[name] == pa.float64():
            wrong = next((value for value in plain if isinstance(value, int) and float(value) != value), None)
            if wrong is not None:
                raise CorpusError(
                    f"column {name!r}",
                    f"expected integers that are exact as numbers of 64 bits, since others have a fraction; found {wrong}.",
                    "Convert the column in the files, or take it out of source.keep_columns.",
                )
            plain = [None if value is None else float(value) for value in plain]
        columns[name] = pa.array(plain, types[name])
    return columns


class KeptAgain(NamedTuple):
    """The kept values of a unit's documents, as KeptColumns gives them, and their kinds."""

    values: pa.LargeStringArray
    kinds: Kinds


def kept_again(rows: pa.Table, names: Sequence[str]) -> KeptAgain | None:
    """Restores the values of columns of a unit from its rows in the dataset's index. None if a column has only whole numbers as
    floating-point numbers: the unit's own may be integers, which became such numbers beside a fraction of another unit."""
    kinds: Kinds = {name: {} for name in names}
    for name in names:
        column = rows[name].drop_null()
        if pa.types.is_floating(column.type) and len(column) and pc.all(pc.equal(column, pc.trunc(column))).as_py():
            return None
        if len(column):
            kind = next(kind for kind, type in _TYPES.items() if type == column.type)
            kinds[name][kind] = rows["shard"].filter(pc.is_valid(rows[name]))[0].as_py()
    make = maker_of_values(tuple(names)).make
    values = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return KeptAgain(pa.array([make(row).json for row in values], pa.large_string()), kinds)


def names_of(folder: Path) -> list[str]:
    """The names of the columns that the unit in this folder keeps, in the order of its values."""
    path = folder / KINDS_FILE
    return list(msgspec.json.decode(read(path), type=Kinds)) if path.exists() else []


def _values(batch: Batch) -> pa.LargeStringArray:
    assert batch.messages is not None
    return batch.messages


def _decoded(rows: pa.Array) -> list[list[Any]]:
    found: list[list[Any]] = msgspec.json.decode("[" + ",".join(rows.to_pylist()) + "]")
    return found
