"""A column without values may have the type null, as pandas and Spark write it: it has no documents, or bad ones."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.shards import write_ipc
from tokenmill.config.sources import Column, Conversations, PairColumns, Reading
from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.reader import find_shards, read_batches

READINGS: dict[str, Reading] = {
    "text_column": Reading("empty"),
    "id_column": Reading("text", "empty"),
    "count.by": Reading("text", columns=(Column("empty", "count.by"),)),
    "messages_column": Reading("text", conversations=Conversations("empty", None, None)),
    "pair": Reading("text", conversations=Conversations(None, None, None, PairColumns("text", "empty", "text"))),
    "template": Reading("text", conversations=Conversations(None, None, (("user", ("{empty}",)),))),
}
GOOD: dict[str, Reading] = {
    "tools_column": Reading("text", conversations=Conversations("messages", "empty", None)),
    "keep_columns": Reading("text", columns=(Column("empty", "keep_columns"),)),
}
"""The columns that may be null in a good row."""
TYPES = {"null": pa.null(), "categories of nulls": pa.dictionary(pa.int32(), pa.null())}


def write(path: Path, kind: pa.DataType, form: str, n_rows: int) -> None:
    messages = [[{"role": "user", "content": "a"}]] * n_rows
    columns = {"text": ["the cat"] * n_rows, "messages": messages, "empty": pa.nulls(n_rows, kind)}
    table = pa.table(columns)
    if form == "parquet":
        pq.write_table(table, path)
    else:
        write_ipc(path, table, pa.ipc.new_file if form == "arrow file" else pa.ipc.new_stream)


def found_in(path: Path, reading: Reading) -> tuple[int, list[BadDocument]]:
    (shard,) = find_shards(path.parent, path.name)
    bad: list[BadDocument] = []
    return sum(len(batch.texts) for batch in read_batches(shard, reading, on_bad=bad.append)), bad


@pytest.mark.parametrize("form", ["parquet", "arrow file", "arrow stream"])
@pytest.mark.parametrize("setting", [*READINGS, *GOOD])
@pytest.mark.parametrize("kind", TYPES)
def test_a_column_of_type_null_has_no_documents_or_bad_ones(tmp_path: Path, kind: str, setting: str, form: str) -> None:
    path = tmp_path / ("a.parquet" if form == "parquet" else "a.arrow")
    reading = READINGS.get(setting) or GOOD[setting]
    for n_rows in (0, 2):
        try:
            write(path, TYPES[kind], form, n_rows)
        except pa.ArrowException:
            pytest.skip("pyarrow does not write such a column")
        n_documents, bad = found_in(path, reading)
        if setting in READINGS:
            assert n_documents == 0 and [one.row for one in bad] == list(range(n_rows))
        else:
            assert n_documents == n_rows and not bad
