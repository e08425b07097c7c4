"""Every file format: what is written is what a reader made from the format's own layout finds, and what `read` gives again."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.format_files import (
    GIB,
    OF_TEXTS,
    Item,
    batch_of,
    compare,
    document,
    formats,
    id_types,
    kinds,
    labelled,
    read,
    shape_of,
    write,
)
from tests.builders.format_readers import READERS
from tokenmill.errors import ValidationError
from tokenmill.format_facts import FORMATS
from tokenmill.formats import llmc, offsets32, parquet
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.interface import Format
from tokenmill.formats.tokens import schema
from tokenmill_reader.formats.columns import schema_of
from tokenmill_reader.formats.datatrove import metadata_of
from tokenmill_reader.formats.items import Shape
from tokenmill_reader.formats.table import READ_FORMATS


def check(format: Format, folder: Path, items: Sequence[Item], shape: Shape) -> None:
    """Both readers give the items, and so do the flat arrays."""
    ids = shape.ids.str[1:]
    packed = shape.length is not None
    columns = ["input_ids", "starts"] if packed else ["input_ids"]
    found = READERS[format.name](folder, "a", ids, packed)
    if format.name == "olmo" and not shape.has_names:
        found = [row | {"id": int(row["id"])} for row in found]
    compare(found, items, columns)
    compare(read(format, folder, shape), items, columns)
    if format.flat is None:
        return
    at = 0
    for flat in format.flat(folder, "a", shape):
        assert flat.offsets.dtype == np.int64
        n = len(flat.offsets) - 1
        of_these = items[at : at + n]
        found = [flat.ids[flat.offsets[i] : flat.offsets[i + 1]].tolist() for i in range(n)]
        assert found == [item["input_ids"] for item in of_these]
        if packed:
            assert flat.starts is not None
            starts = [flat.starts.values[a:b].tolist() for a, b in pairwise(flat.starts.offsets)]
            assert starts == [item["starts"] for item in of_these]
        if flat.labels is not None:
            assert flat.labels.tolist() == [label for item in of_these for label in item["labels"]]
        at += n
    assert at == len(items)


NAMES = [
    "plain",
    "a,b",
    'say "so"',
    "line\nbreak\r\n",
    "tab\tand \\n",
    "京都 🙂",
    "",
    " ",
    "\x00\x1b\x85\u2028end",
    "\\x0a",
]


@formats
@id_types
@kinds
def test_items_come_back(format: Format, ids: str, packed: bool, tmp_path: Path) -> None:
    shape = shape_of(ids, packed)
    largest = shape.id_max
    if packed:
        items = [
            {"input_ids": [5, 6, 1, 7, 1, 0, 1, largest], "starts": [0, 3, 5, 7]},
            {"input_ids": [9], "starts": [0]},
            {"input_ids": [4, 4, 4, 1], "starts": [0]},
        ]
    else:
        items = [document([i, largest, 0, 1], name, i) for i, name in enumerate(NAMES)]
    if format.refusal(shape, GIB):
        pytest.skip("the format cannot hold these items")
    files = write(format, tmp_path, items, shape, borders=[1, 1, 2])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in files)
    check(format, tmp_path, items, shape)


@formats
def test_documents_without_names_have_their_rows(format: Format, tmp_path: Path) -> None:
    shape = shape_of("u2", False, has_names=False)
    items = [document([i, 1], name=i * 3, row=i * 3) for i in range(5)]
    write(format, tmp_path, items, shape)
    check(format, tmp_path, items, shape)


@formats
def test_empty_documents_keep_their_place(format: Format, tmp_path: Path) -> None:
    shape = shape_of("u2", False, end_id=None)
    items = [document(ids, row=i) for i, ids in enumerate([[], [1, 2], [], [], [3], []])]
    if format.name == "mds":
        assert "without tokens" in (format.refusal(shape, GIB) or "")
        with pytest.raises(ValidationError, match=r"a\.mds: item 1: expected a token"):
            write(format, tmp_path, items[1:], shape, borders=[1])
        return
    write(format, tmp_path, items, shape)
    check(format, tmp_path, items, shape)


@formats
@kinds
def test_a_part_without_items_is_read_as_such(format: Format, packed: bool, tmp_path: Path) -> None:
    shape = shape_of("u2", packed)
    write(format, tmp_path, [], shape)
    check(format, tmp_path, [], shape)


@pytest.mark.slow
@formats
@id_types
def test_a_huge_document_between_small_ones(format: Format, ids: str, tmp_path: Path) -> None:
    shape = shape_of(ids, False)
    if format.refusal(shape, GIB):
        pytest.skip("the format cannot hold these items")
    huge = np.arange(3_000_000) % 60_000
    items = [document([1, 2]), document(huge.tolist(), row=1), document([3], row=2)]
    write(format, tmp_path / "whole", items, shape)
    check(format, tmp_path / "whole", items, shape)
    write(format, tmp_path / "cut", items, shape, borders=[1, 2])
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "cut" / path.name).read_bytes()


@formats
def test_labels_are_kept_or_refused(format: Format, tmp_path: Path) -> None:
    shape = shape_of("u2", True, has_labels=True)
    if format.name not in ("parquet", "arrow", "mds"):
        assert "labels" in (format.refusal(shape, GIB) or "")
        return
    assert format.refusal(shape, GIB) is None
    write(format, tmp_path, labelled(), shape)
    check(format, tmp_path, labelled(), shape)
    columns = ["input_ids", "starts", "labels", "position_ids", "seq_lengths"]
    compare(read(format, tmp_path, shape), labelled(), columns)


@pytest.mark.parametrize(
    ("name", "changes", "file_bytes", "reason"),
    [
        ("nanogpt", {"id_max": 70_000}, GIB, "65,535"),
        ("llmc", {"id_max": 70_000}, GIB, "65,535"),
        ("llmc", {}, 4 * GIB, "4 GiB"),
        ("mds", {"begin_id": None, "end_id": None}, GIB, "without tokens"),
        ("mds", {}, 4 * GIB, "4 GiB"),
        ("litdata", {}, 4 * GIB, "4 GiB"),
        ("megatron", {"id_max": 2**31}, GIB, "2,147,483,647"),
        ("litdata", {"id_max": 2**31}, GIB, "2,147,483,647"),
        ("mds", {"id_max": 2**31}, GIB, "2,147,483,647"),
        ("datatrove", {"tokenizer_digest": "a|4"}, GIB, "|"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(name: str, changes: dict[str, Any], file_bytes: int, reason: str) -> None:
    format = SET_FORMATS[name]
    assert format.refusal(shape_of("u2", False), 4 * GIB - 1) is None
    assert reason in (format.refusal(replace(shape_of("u2", False), **changes), file_bytes) or "")


@formats
def test_an_id_over_the_tokenizers_largest_is_an_error(format: Format, tmp_path: Path) -> None:
    shape = shape_of("u2", False, id_max=9)
    items = [document([1, 2]), document([3, 9]), document([4, 10])]
    with pytest.raises(ValidationError, match=r"a\.\w+: item 2: expected ids of 0 to 9, .*; found 10"):
        write(format, tmp_path, items, shape, borders=[1])


@formats
def test_an_id_over_its_type_never_wraps(format: Format, tmp_path: Path) -> None:
    shape = shape_of("u2", False)
    wide = shape_of("u4", False)
    with (
        pytest.raises(ValidationError, match=r"a\.\w+: items from 1: .*70000"),
        format.write(tmp_path, "a", shape) as add,
    ):
        add(batch_of([document([4, 65_535])], wide))
        add(batch_of([document([4, 70_000])], wide))


@formats
@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"input_ids": [], "starts": []}, "1 to 8 tokens; found 0"),
        ({"input_ids": [1] * 9, "starts": [0]}, "1 to 8 tokens; found 9"),
        ({"input_ids": [1, 2], "starts": []}, "found \\[\\]"),
        ({"input_ids": [1, 2], "starts": [1]}, "found \\[1\\]"),
        ({"input_ids": [1, 2], "starts": [0, 2]}, "found \\[0, 2\\]"),
        ({"input_ids": [1, 2, 3], "starts": [0, 1, 1]}, "found \\[0, 1, 1\\]"),
    ],
)
def test_starts_that_do_not_fit_their_sequence_are_an_error(
    format: Format, item: Item, words: str, tmp_path: Path
) -> None:
    good = {"input_ids": [1, 2], "starts": [0, 1]}
    with pytest.raises(ValidationError, match=f"item 2: .*{words}"):
        write(format, tmp_path, [good, good, item, good], shape_of("u2", True), borders=[1])


@pytest.mark.parametrize("name", ["mds", "litdata"])
def test_a_file_that_grows_over_its_offsets_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets32, "FILE_BYTES_MAX", 1000)  # for 4 GiB
    items = [document([1] * 100, row=i) for i in range(5)]
    write(SET_FORMATS[name], tmp_path / "4", items[:3], shape_of("u2", False))
    with pytest.raises(ValidationError, match=r"a\.\w+: expected at most 1,000 bytes"):
        write(SET_FORMATS[name], tmp_path / "5", items, shape_of("u2", False))


def test_more_ids_than_the_header_of_llmc_counts_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llmc, "INT32_MAX", 4)
    items = [document([1, 2], row=i) for i in range(3)]
    write(SET_FORMATS["llmc"], tmp_path / "4", items[:2], shape_of("u2", False))
    with pytest.raises(ValidationError, match=r"a\.bin: expected at most 4 ids, .*encode\.file_bytes"):
        write(SET_FORMATS["llmc"], tmp_path / "6", items, shape_of("u2", False))


def test_an_error_of_the_system_names_the_file(tmp_path: Path) -> None:
    for format in OF_TEXTS.values():
        with (
            pytest.raises(FileNotFoundError) as found,
            format.write(tmp_path / "missing", "a", shape_of("u2", False)),
        ):
            pass
        assert str(tmp_path / "missing") in str(found.value)


def test_the_names_are_those_of_the_table() -> None:
    assert list(SET_FORMATS) == list(FORMATS) == list(READERS)
    assert {name for name, one in FORMATS.items() if one.opened_by is None} == set(READ_FORMATS)
    assert [name for name, format in SET_FORMATS.items() if format.one_file] == ["nanogpt"]


lists = st.lists(st.integers(0, 300), max_size=8)
documents = st.lists(st.tuples(lists, st.text(max_size=5), st.text(max_size=3), st.integers(0, 2**40)), max_size=12)


@st.composite
def sequence(draw: st.DrawFn) -> Item:
    ids = draw(st.lists(st.integers(0, 300), min_size=1, max_size=8))
    starts = sorted({0, *draw(st.lists(st.integers(0, len(ids) - 1)))})
    return {"input_ids": ids, "starts": starts}


@pytest.mark.slow
@formats
@given(data=st.data(), found=documents, ids=st.sampled_from(["u2", "u4"]))
def test_documents_in_other_batches_are_the_same_bytes(
    format: Format, data: st.DataObject, found: Any, ids: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = shape_of(ids, False, end_id=None if format.name != "mds" else 1)
    if format.refusal(shape, GIB):
        return
    items = [
        {"id": name, "input_ids": [*one, 1], "n_bytes": len(one), "shard": shard, "row": row}
        for one, name, shard, row in found
    ]
    both_batchings(format, items, shape, data, tmp_path_factory)


@pytest.mark.slow
@formats
@given(data=st.data(), items=st.lists(sequence(), max_size=12), ids=st.sampled_from(["u2", "u4"]))
def test_sequences_in_other_batches_are_the_same_bytes(
    format: Format, data: st.DataObject, items: list[Item], ids: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = shape_of(ids, True)
    if format.refusal(shape, GIB):
        return
    both_batchings(format, items, shape, data, tmp_path_factory)


def both_batchings(
    format: Format, items: list[Item], shape: Shape, data: st.DataObject, factory: pytest.TempPathFactory
) -> None:
    borders = data.draw(st.lists(st.integers(0, len(items))))
    whole, cut = factory.mktemp("whole"), factory.mktemp("cut")
    write(format, whole, items, shape)
    check(format, whole, items, shape)
    write(format, cut, items, shape, borders)
    for path in whole.iterdir():
        assert path.read_bytes() == (cut / path.name).read_bytes()


@formats
@kinds
def test_many_items_in_other_batches_are_the_same_bytes(format: Format, packed: bool, tmp_path: Path) -> None:
    """More than one row group, record batch, gzip member and batch of a reader."""
    shape = shape_of("u2", packed, length=400 if packed else None)
    random.seed(7)
    n, n_ids = (40_000, 2_600_000) if not packed else (12_000, 2_600_000)
    ends = np.sort(np.array(random.sample(range(n_ids), n)))
    lengths = np.minimum(np.diff(ends, prepend=-1), 400)
    ids = np.random.default_rng(7).integers(0, 2**16, lengths.sum(), np.uint16)
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    input_ids = pa.ListArray.from_arrays(offsets, pa.array(ids), type=schema_of(shape).field("input_ids").type)
    if packed:
        starts = [[0] if length < 9 else [0, 4, int(length) - 1] for length in lengths]
        whole = pa.RecordBatch.from_arrays(
            [input_ids, pa.array(starts, schema_of(shape).field("starts").type)], schema=schema_of(shape)
        )
    else:
        names = pa.array([f"document {i}, of many" for i in range(n)])
        shards = pa.array([f"shard-{i // 1000}.jsonl" for i in range(n)])
        row = pa.array(range(n), pa.int64())
        whole = pa.RecordBatch.from_arrays([names, input_ids, row, shards, row], schema=schema_of(shape))
    for folder, n_rows in (("whole", n), ("cut", 777)):
        (tmp_path / folder).mkdir()
        with format.write(tmp_path / folder, "a", shape) as add:
            for start in range(0, n, n_rows):
                add(whole.slice(start, n_rows))
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "cut" / path.name).read_bytes()
    batches = list(format.read(tmp_path / "cut", "a", shape))
    assert len(batches) > 1
    found = pa.Table.from_batches(batches)
    found.validate(full=True)
    assert found == pa.Table.from_batches([whole]).select(found.column_names)


def test_more_row_groups_than_a_parquet_file_can_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_GROUPS_MAX", 2)
    monkeypatch.setattr(parquet, "_GROUP_ROWS_MAX", 1)
    shape = schema(pa.uint16(), has_names=False)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([0]), pa.array([[1, 2]], shape.field("input_ids").type), pa.array([5])], schema=shape
    )
    path = tmp_path / "tokens.parquet"
    with parquet.write_tokens(path, shape) as add:
        for _ in range(2):
            add(batch)
    assert pq.ParquetFile(path).num_row_groups == 2
    with (
        pytest.raises(
            ValidationError, match=r"tokens.parquet: a Parquet file has at most 2 row groups.*encode.file_bytes"
        ),
        parquet.write_tokens(path, shape) as add,
    ):
        for _ in range(3):
            add(batch)


@pytest.mark.parametrize(
    ("n_tokens", "words"), [(0, "0.00 T"), (999, "999 T"), (1000, "1.00 kT"), (12345, "12.3 kT"), (999_999, "1.00 MT")]
)
def test_datatrove_metadata_has_the_tokens_in_three_digits(n_tokens: int, words: str) -> None:
    shape = Shape(id_max=9, tokenizer_digest="d1", begin_id=None, end_id=None, has_names=False)
    assert metadata_of(shape, n_tokens) == f"d1|2\n{n_tokens}\n{words}"
