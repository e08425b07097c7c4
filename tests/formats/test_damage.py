"""Damage to the files of a token dataset is found when they are read, and told with the file's name."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.format_files import OF_TEXTS, document, formats, ids_of, kinds, labelled, read, shape_of, write
from tokenmill.errors import ValidationError
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.interface import Format
from tokenmill_reader.formats.items import Shape

DOCUMENTS = [document([3, 4, 1], "a"), document([1], "b, c", 1), document([9] * 300 + [1], "d", 2)]
SEQUENCES = [{"input_ids": [5, 6, 1, 7], "starts": [0, 3]}, {"input_ids": [8, 1], "starts": [0]}]


def written(format: Format, folder: Path, packed: bool, ids: str = "u2") -> tuple[Shape, list[Path]]:
    shape = shape_of(ids, packed)
    write(format, folder, SEQUENCES if packed else DOCUMENTS, shape)
    return shape, [folder / name for name in format.files("a", shape)]


def found_by_read(format: Format, folder: Path, shape: Shape, path: Path) -> None:
    """Reading fails with a message that begins with a file of the part."""
    with pytest.raises(ValidationError) as found:
        read(format, folder, shape)
    names = [str(folder / name) for name in format.files("a", shape)]
    assert str(found.value).startswith(tuple(names)), f"{path.name}: {found.value}"
    assert str(found.value).endswith("build it again.")


@formats
@kinds
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:-2],
        lambda data: data[:-4],
        lambda data: data[:-8],
        lambda data: data[: len(data) // 2],
        lambda data: data[:5],
        lambda data: b"",
        lambda data: data + b"\0\0\0\0",
        lambda data: data + data,
        None,
    ],
    ids=["1 less", "2 less", "4 less", "8 less", "half", "5 bytes", "empty", "4 more", "twice", "missing"],
)
def test_a_file_of_another_length_is_found(
    format: Format, packed: bool, damage: Callable[[bytes], bytes] | None, tmp_path: Path
) -> None:
    shape, paths = written(format, tmp_path, packed)
    for path in paths:
        data = path.read_bytes()
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage(data))
        if damage is not None and (path.suffix, damage(b"1")) in ((".gz", b"1\0\0\0\0"), (".parquet", b"11")):
            # Zeros behind a gzip member are padding, and the end of a Parquet file says where in it the rows are.
            assert len(read(format, tmp_path, shape)) == 3 - packed
        else:
            found_by_read(format, tmp_path, shape, path)
        path.write_bytes(data)


@formats
@kinds
@given(data=st.data())
def test_a_changed_byte_is_an_error_or_another_value(
    format: Format, packed: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Never a crash, an error of another kind, or a batch that is not sound."""
    folder = tmp_path_factory.mktemp("damaged")
    shape, paths = written(format, folder, packed)
    path = data.draw(st.sampled_from(paths))
    bytes_there = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(bytes_there) - 1))
    bytes_there[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes_there)
    try:
        for batch in format.read(folder, "a", shape):
            batch.validate(full=True)
            assert int(ids_of(batch).max()) <= shape.id_max
    except ValidationError as error:
        assert str(folder) in str(error)
    if format.flat:
        try:
            format.flat(folder, "a", shape)
        except ValidationError as error:
            assert str(folder) in str(error)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (0, b"X", "magic"),
        (9, b"\2", "version: expected 1; found 2"),
        (17, b"\4", "type: expected 8; found 4"),
        (18, b"\4", "n_document_indices: expected 5; found 4"),
        (34, b"\4", r"item 1: its length, place or document index"),
        (46 + 8, b"\3", r"item 1: its length, place or document index"),
        (46 + 24 + 24, b"\2", r"item 3: its length, place or document index"),
    ],
)
def test_an_index_of_megatron_that_does_not_fit_is_found(at: int, value: bytes, words: str, tmp_path: Path) -> None:
    megatron = SET_FORMATS["megatron"]
    shape, (_, path) = written(megatron, tmp_path, packed=False)
    data = path.read_bytes()
    path.write_bytes(data[:at] + value + data[at + 1 :])
    with pytest.raises(ValidationError, match=rf"a\.idx: {words}"):
        read(megatron, tmp_path, shape)


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (0, 20240522, "header: expected 20240520 as value 0; found 20240522"),
        (1, 2, "header: expected 1 as value 1; found 2"),
        (2, 304, "header: expected 305 as value 2; found 304"),
        (255, 1, "header: expected 0 as value 255; found 1"),
    ],
)
def test_a_header_of_llmc_that_does_not_fit_is_found(at: int, value: int, words: str, tmp_path: Path) -> None:
    llmc = SET_FORMATS["llmc"]
    shape, (path, _) = written(llmc, tmp_path, packed=False)
    there = np.fromfile(path, "<i4", 256)
    data = path.read_bytes()
    there[at] = value
    path.write_bytes(there.tobytes() + data[1024:])
    with pytest.raises(ValidationError, match=rf"a\.bin: {words}"):
        read(llmc, tmp_path, shape)
    for cut in (data[:1023], data[:-1], b""):
        path.write_bytes(cut)
        with pytest.raises(ValidationError, match=rf"a\.bin: expected a header of 1,024 bytes .*; found {len(cut):,}"):
            read(llmc, tmp_path, shape)


def test_another_type_of_ids_is_found(tmp_path: Path) -> None:
    for format in OF_TEXTS.values():
        if format.name in ("nanogpt", "llmc", "litdata"):  # there is no such type, or a part does not say it
            continue
        written(format, tmp_path / format.name, packed=False, ids="u4")
        with pytest.raises(ValidationError):
            read(format, tmp_path / format.name, shape_of("u2", False))


def test_an_id_over_the_largest_is_found_with_its_item(tmp_path: Path) -> None:
    for format in OF_TEXTS.values():
        written(format, tmp_path / format.name, packed=False)
        with pytest.raises(ValidationError, match=r"a\.\w+: item 2: expected ids of 0 to 8, .*; found 9"):
            read(format, tmp_path / format.name, shape_of("u2", False, id_max=8))


def test_ends_that_fall_are_found(tmp_path: Path) -> None:
    datatrove = SET_FORMATS["datatrove"]
    shape, _ = written(datatrove, tmp_path, packed=False)
    np.array([3, 2, 305], "<u8").tofile(tmp_path / "a.ds.index")
    with pytest.raises(ValidationError, match=r"a\.ds\.index: item 1 ends before it begins"):
        read(datatrove, tmp_path, shape)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,3,a,s,1\n3,2,b,s,2\n2,305,c,s,3\n", "line 2: expected a document that begins at 3; found 3 to 2"),
        ("0,3,a,s,1\n4,305,b,s,2\n", "line 2: expected a document that begins at 3; found 4 to 305"),
        ("0,3,a,s,1\n3,4,b,s,2\n", "expected lines of 305 ids"),
        ("0,3,a,s,1\n3,306,b,s,2\n", "expected lines of 305 ids"),
        ("0,3,a,s\n", "cannot be read"),
        ("0,x,a,s,1\n", "cannot be read"),
        ("0,99999999999999999999,a,s,1\n", "cannot be read"),
    ],
)
def test_lines_of_olmo_that_do_not_follow_are_found(text: str, words: str, tmp_path: Path) -> None:
    olmo = SET_FORMATS["olmo"]
    shape, (_, path) = written(olmo, tmp_path, packed=False)
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ValidationError, match=rf"a\.csv\.gz: {words}"):
        read(olmo, tmp_path, shape)


def test_starts_of_another_part_are_found(tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [{"input_ids": [1, 2], "starts": [0, 1]}, {"input_ids": [8, 1], "starts": [0]}]
    for format in OF_TEXTS.values():
        if not format.packed_suffixes:
            continue
        shape, _ = written(format, tmp_path / format.name, packed=True)
        write(format, tmp_path / "others", others[1:] * 4, shape, stem=format.name)
        shutil.copy(tmp_path / "others" / f"{format.name}.starts.arrow", tmp_path / format.name / "a.starts.arrow")
        with pytest.raises(ValidationError):
            read(format, tmp_path / format.name, shape)
        if format.finish:
            shutil.rmtree(tmp_path / "others")


def test_labels_of_another_length_are_found(tmp_path: Path) -> None:
    shape = shape_of("u2", True, has_labels=True)
    items = labelled()
    for format in (SET_FORMATS[name] for name in ("parquet", "arrow", "mds")):
        with pytest.raises(ValidationError, match="item 1: expected 2 values of labels, one for each id; found 1"):
            write(format, tmp_path / format.name, [items[0], items[1] | {"labels": [1]}], shape)


def test_a_file_of_arrow_that_is_cut_at_a_batch_is_found(tmp_path: Path) -> None:
    arrow = SET_FORMATS["arrow"]
    shape, (path,) = written(arrow, tmp_path, packed=False)
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        reader.read_next_batch()
        end = source.tell()
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(ValidationError, match=r"a\.arrow: it is cut off"):
        read(arrow, tmp_path, shape)
