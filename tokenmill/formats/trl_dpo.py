"""trl_dpo: preference pairs with the columns that TRL's DPOTrainer makes of them.

The columns are those of `_prepare_dataset` and `DataCollatorForPreference` in trl/trainer/dpo_trainer.py of TRL 1.16.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenmill.formats.arrow_file import new_arrow_file
from tokenmill.formats.batches import even_batches
from tokenmill.formats.interface import Format
from tokenmill.formats.item_checks import check_items, checking
from tokenmill_reader.formats.arrow_file import read_arrow_file
from tokenmill_reader.formats.columns import SOURCE_IDS, id_type_of, list_of, list_values, schema_of
from tokenmill_reader.formats.items import ARROW_SUFFIX, Shape

_NAMES = ("prompt_ids", "chosen_ids", "rejected_ids")
_ROWS_MAX, _VALUES_MAX = 1 << 16, 1 << 21  # of a record batch, as of the format arrow


def _columns(shape: Shape) -> pa.Schema:
    sources = [list_of(SOURCE_IDS, pa.int32())] * shape.has_sources
    return pa.schema([*(list_of(name, id_type_of(shape)) for name in _NAMES), *sources])


@contextmanager
def _write(folder: Path, stem: str, shape: Shape) -> Iterator[Callable[[pa.RecordBatch], None]]:
    path = folder / f"{stem}{ARROW_SUFFIX}"
    with (
        new_arrow_file(path, _columns(shape)) as write,
        even_batches(lambda batch: write(_pairs(batch, shape)), "input_ids", _ROWS_MAX, _VALUES_MAX) as put,
    ):
        used = ["input_ids", "loss_mask", *[SOURCE_IDS] * shape.has_sources]
        yield checking(lambda batch: put(batch.select(used)), shape, path)


def _pairs(batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """The columns of TRL. A sequence is the prompt, the chosen answer, the prompt again and the rejected answer; the answers are
    what is trained."""
    (ids, offsets), (mask, _) = list_values(batch["input_ids"]), list_values(batch["loss_mask"])
    edges = np.flatnonzero(np.diff(mask, prepend=0, append=0)).reshape(-1, 4)  # no answer ends where another one begins
    prompt, chosen, second, end = edges.T
    parts = ((offsets[:-1], prompt), (prompt, chosen), (second, end))
    values = pa.array(ids)
    type = _columns(shape).field(0).type
    arrays = [_lists(values, start, stop, type) for start, stop in parts]
    sources = [batch[SOURCE_IDS]] if shape.has_sources else []
    return pa.RecordBatch.from_arrays([*arrays, *sources], schema=_columns(shape))


def _lists(values: pa.Array, start: np.ndarray, stop: np.ndarray, kind: pa.DataType) -> pa.ListArray:
    flat = pa.LargeListViewArray.from_arrays(pa.array(start), pa.array(stop - start), values).flatten()
    offsets = np.concatenate([[0], np.cumsum(stop - start)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=kind)


def _read(folder: Path, stem: str, shape: Shape) -> Iterator[pa.RecordBatch]:
    path = folder / f"{stem}{ARROW_SUFFIX}"
    n_items = 0
    for batch in read_arrow_file(path, _columns(shape)):
        found = _sequences(batch, shape)
        check_items(found, shape, path, n_items)
        yield found
        n_items += batch.num_rows


def _sequences(batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """The inverse of `_pairs`."""
    columns: dict[str, list[list[int]]] = {"input_ids": [], "starts": [], "loss_mask": []}
    for prompt, chosen, rejected in zip(*(batch[name].to_pylist() for name in _NAMES), strict=True):
        columns["input_ids"].append(prompt + chosen + prompt + rejected)
        columns["starts"].append([0, len(prompt) + len(chosen)])
        columns["loss_mask"].append([0] * len(prompt) + [1] * len(chosen) + [0] * len(prompt) + [1] * len(rejected))
    fields = [schema_of(shape).field(name) for name in columns]
    arrays = [pa.array(columns[field.name], field.type) for field in fields]
    if shape.has_sources:
        fields, arrays = [*fields, schema_of(shape).field(SOURCE_IDS)], [*arrays, batch[SOURCE_IDS]]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _refusal(shape: Shape, file_bytes: int) -> str | None:
    if not shape.is_pair:
        return "trl_dpo holds preference pairs; set source.pair and encode.chat.turns: pair, or choose another format"
    if shape.length is None:
        return "trl_dpo holds pairs of a largest length; set encode.pack: {length: 1024, mode: none, long: cut}, or long: drop"
    return None


TRL_DPO = Format("trl_dpo", (ARROW_SUFFIX,), _write, _read, None, _refusal, is_table=True)
