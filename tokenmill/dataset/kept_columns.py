"""The columns of `keep_columns`: read beside a unit's documents, and typed once all units are there."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.corpus.kept_values import json_of
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError
from tokenmill.storage.atomic import write_atomic
from tokenmill_reader.regular_files import read

KEPT = pa.field("kept", pa.large_string(), nullable=False)
"""The column of a unit's document index with the values of each document: a JSON array of what `json_of` gives."""

KINDS_FILE = "kept.json"
"""The file in a unit's folder with the kinds of values of each column, and a shard that has them."""

_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "bool": pa.bool_()}
_KINDS = {'"': "string", "[": "number", "t": "bool", "f": "bool"}
"""The kinds of values by the first character of their JSON; other characters begin integers, but for n, which begins null."""

Kinds = dict[str, dict[str, str]]
"""For each column, the kinds of its values, and for each kind the name of a shard with such a value."""


class KeptColumns:
    """The kept values of a unit's documents, and their kinds so far. `kinds`: see Kinds."""

    def __init__(self, unit: Unit) -> None:
        self.kinds: Kinds = {name: {} for name in unit.source.keep_columns}
        self._unit = unit

    def of(self, batch: Batch) -> pa.LargeStringArray:
        """The values of each document of a batch, which was read with the columns."""
        values_of = [batch.columns[column] for column in self._unit.source.kept]
        for kinds, values in zip(self.kinds.values(), values_of, strict=True):
            firsts = pc.utf8_slice_codeunits(values, 0, 1)
            for first in pc.unique(firsts).to_pylist():
                kind = _KINDS.get(first, "integer")
                if first != "n" and kind not in kinds:
                    i = pc.index(firsts, first).as_py()
                    kinds[kind] = self._unit.pieces[batch.piece(i)].shard.name
        return _rows(values_of)


def kept_of(unit: Unit) -> KeptColumns | None:
    """The kept columns of a unit; None if its source keeps none."""
    return KeptColumns(unit) if unit.source.keep_columns else None


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
    values = [pa.array(map(json_of, rows[name].to_pylist()), pa.large_string()) for name in names]
    return KeptAgain(_rows(values), kinds)


def names_of(folder: Path) -> list[str]:
    """The names of the columns that the unit in this folder keeps, in the order of its values."""
    path = folder / KINDS_FILE
    return list(msgspec.json.decode(read(path), type=Kinds)) if path.exists() else []


def _rows(values: Sequence[pa.LargeStringArray]) -> pa.LargeStringArray:
    """The JSON array of each row. `values`: the JSON of each column's values."""
    begin, end, comma, nothing = (pa.scalar(part, pa.large_string()) for part in ("[", "]", ",", ""))
    return pc.binary_join_element_wise(begin, pc.binary_join_element_wise(*values, comma), end, nothing)


def _decoded(rows: pa.Array) -> list[list[Any]]:
    found: list[list[Any]] = msgspec.json.decode("[" + ",".join(rows.to_pylist()) + "]")
    return found
