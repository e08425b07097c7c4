"""A file of any kind under any name is read, or refused in one line that says what it is."""

import bz2
import gzip
import io
import json
import lzma
import random
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.builders.trained import trained
from tokenmill.config.sources import DocumentSource, Reading
from tokenmill.corpus.kinds import DocumentFormat
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.corpus.units import cut
from tokenmill.counts.table import read_counts
from tokenmill.errors import CorpusError, DamagedError, PointerError, TokenmillError
from tokenmill.features.convert.convert import read_form
from tokenmill.features.drop.filter.drop_list import DropList
from tokenmill.storage.contents import content_of
from tokenmill.storage.file_facts import Digests
from tokenmill.tokenizer.tokenizer import Tokenizer

TEXT = "the cat sat on the mat"
LINES = json.dumps({"text": TEXT}).encode() + b"\n"
TABLE = pa.table({"text": [TEXT]})
GARBAGE = random.Random(1).randbytes(600)
LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a1' * 32}\nsize 12345\n".encode()


def _written(write: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def _ipc(new: Callable[..., pa.ipc.RecordBatchStreamWriter]) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return bytes(sink.getvalue())


def _lz4() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(LINES)
    return bytes(sink.getvalue())


def _orc() -> bytes:
    sink = pa.BufferOutputStream()
    orc.write_table(TABLE, sink)
    return bytes(sink.getvalue())


def _archive(file: io.BytesIO, name: str) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, LINES)


def _tar(file: io.BytesIO) -> None:
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("a.jsonl")
        entry.size = len(LINES)
        archive.addfile(entry, io.BytesIO(LINES))


def _sqlite() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table documents (text)")
        database.commit()
        return bytes(database.serialize())


def _png() -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


PARQUET = _written(lambda file: pq.write_table(TABLE, file))
STREAM, FILE = _ipc(pa.ipc.new_stream), _ipc(pa.ipc.new_file)
CONTENTS: dict[str, tuple[bytes, str]] = {
    "gzip": (gzip.compress(LINES), "gzip"),
    "zstd": (zstandard.compress(LINES), "zstd"),
    "bz2": (bz2.compress(LINES), "bzip2"),
    "xz": (lzma.compress(LINES), "xz"),
    "lz4": (_lz4(), "lz4"),
    "zip": (_written(lambda file: _archive(file, "a.jsonl")), "zip"),
    "xlsx": (_written(lambda file: _archive(file, "[Content_Types].xml")), ".xlsx"),
    "tar": (_written(_tar), "tar archive"),
    "parquet": (PARQUET, "Parquet"),
    "arrow file": (FILE, "Arrow"),
    "arrow stream": (STREAM, "Arrow"),
    "orc": (_orc(), "ORC"),
    "avro": (b'Obj\x01\x02\x16avro.schema\x0c"null"\0' + GARBAGE[:16] + b"\x02\0" + GARBAGE[:16], "Avro"),
    "sqlite": (_sqlite(), "SQLite"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n%%EOF\n", "PDF"),
    "pdf in ascii": (b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\n%%EOF\n", "PDF"),
    "png": (_png(), "image"),
    "utf-16 with mark": (LINES.decode().encode("utf-16"), "UTF-16"),
    "utf-16-le": (LINES.decode().encode("utf-16-le"), "UTF-16"),
    "utf-16-be": (LINES.decode().encode("utf-16-be"), "UTF-16"),
    "utf-32": (LINES.decode().encode("utf-32"), "UTF-32"),
    "gguf": (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "GGUF"),
    "zeros": (bytes(512), "zeros"),
    "pointer": (LFS, "pointer of Git LFS"),
    "html": (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "HTML"),
    "lines": (LINES, "plain text"),
}
"""What a file is, with a word of the message about it."""

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
DOCUMENT_NAMES = [
    "a.jsonl",
    "a.json",
    "a.txt",
    "a.csv",
    "a.tsv",
    "a.parquet",
    "a.arrow",
    *(f"a.jsonl{one}" for one in COMPRESSIONS),
]
READ = {
    *(("lines", f"a.{suffix}") for suffix in ("jsonl", "json", "txt")),
    ("html", "a.txt"),
    ("parquet", "a.parquet"),
    *((f"arrow {form}", "a.arrow") for form in ("file", "stream")),
    *((name, f"a.jsonl{suffix}") for name, suffix in zip(("gzip", "zstd", "bz2", "xz"), COMPRESSIONS, strict=True)),
}
"""The cells whose files are what their names say."""


def texts(path: Path) -> list[str]:
    shards = find_shards(path.parent, path.name)
    (shard,) = shards
    for unit_bytes_max in (1, 10_000):  # a file of another kind is not cut into ranges of lines
        units = cut(shards, Digests(path.parent, trust=False), 0, unit_bytes_max, 1).units
        pieces = [piece for unit in units for piece in unit.pieces]
        reading = Reading("text", None, None)
        found = [
            text
            for piece in pieces
            for batch in read_batches(shard, reading, piece.part)
            for text in batch.texts.to_pylist()
        ]
    return found


def refusal(read: Callable[[], object], word: str) -> TokenmillError:
    with pytest.raises(TokenmillError) as raised:
        read()
    message = str(raised.value)
    assert word in message and "\n" not in message and message.endswith(".")
    assert "delete the line" not in message and "defect" not in message
    return raised.value


@pytest.mark.parametrize("name", DOCUMENT_NAMES)
@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_of_documents_is_read_or_named_for_what_it_is(tmp_path: Path, content: str, name: str) -> None:
    path = tmp_path / name
    data, word = CONTENTS[content]
    path.write_bytes(data)
    if content == "lines" and name in ("a.csv", "a.tsv"):
        word = "Rename it to a.jsonl."
    if (content, name) in READ:
        assert texts(path) == ([data.decode()] if name == "a.txt" else [TEXT])
        return
    error = refusal(lambda: texts(path), word)
    assert isinstance(error, PointerError if content == "pointer" else DamagedError)
    assert name in str(error)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("content", sorted(CONTENTS.keys() - {"lines", "pointer"}))
def test_what_is_compressed_is_named_as_well(tmp_path: Path, content: str, suffix: str) -> None:
    data, word = CONTENTS[content]
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](data))
    assert "what is compressed in it" in str(refusal(lambda: texts(path), word))


ROWS = [{"text": TEXT}] * 2
OTHER_TEXTS = {
    "an array": ("jsonl", json.dumps(ROWS, indent=1), "Rename it to a.json"),
    "an array of lines": (
        "jsonl",
        "[" + ",".join("\n" + json.dumps(row) for row in ROWS) + "\n]",
        "Rename it to a.json",
    ),
    "an object over lines": ("jsonl", json.dumps(ROWS[0], indent=1), "Rename it to a.json"),
    "an array in one line": ("jsonl", json.dumps(ROWS), "the content of a .json file"),
    "joined files with marks": ("jsonl", (LINES.decode() + "\ufeff") * 2, "keep what is behind it"),
    "an array of values": ("csv", json.dumps(ROWS), "Rename it to a.json"),
    "semicolons": ("csv", f"id;text\n1;{TEXT}\n", "semicolons between names"),
    "tabs": ("csv", f"id\ttext\n1\t{TEXT}\n", "tabs between names"),
    "commas": ("tsv", f"id,text\n1,{TEXT}\n", "commas between names"),
}
"""Texts of another form than the format has, with a word of the message."""


WRONG_FORMATS = [
    ("jsonl", json.dumps(ROWS, indent=1).encode(), "json"),
    ("csv", json.dumps(ROWS).encode(), "json"),
    ("csv", LINES, "jsonl"),
    ("jsonl", PARQUET, "parquet"),
    ("csv", FILE, "arrow"),
    ("text", FILE, "arrow"),
]
"""A format that is set, a file of another one, and its format."""


@pytest.mark.parametrize("suffix", ["", *COMPRESSIONS])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("content", OTHER_TEXTS)
def test_a_text_of_another_form_is_named_and_never_to_be_deleted(
    tmp_path: Path, content: str, mark: str, suffix: str
) -> None:
    format, text, word = OTHER_TEXTS[content]
    path = tmp_path / f"a.{format}{suffix}"
    path.write_bytes(COMPRESSIONS.get(suffix, bytes)((mark + text).encode()))
    assert "delete" not in str(refusal(lambda: texts(path), word))
    if word.startswith("Rename"):
        renamed = path.rename(tmp_path / f"a.json{suffix}")
        assert set(texts(renamed)) == {TEXT}


@pytest.mark.parametrize("name", [None, "web"])
@pytest.mark.parametrize(("format", "content", "right"), WRONG_FORMATS)
def test_where_the_format_is_set_the_advice_is_another_one(
    tmp_path: Path, name: str | None, format: DocumentFormat, content: bytes, right: str
) -> None:
    (tmp_path / "a.dump").write_bytes(content)
    source = DocumentSource(name, ("a.dump",), Reading("text"), "encode", 1.0, None, format=format)
    (shard,) = find_shards(tmp_path, "a.dump", source=source)
    said = str(refusal(lambda: list(read_batches(shard, source.reading)), f"Set {source.section}.format: {right}"))
    assert "Rename" not in said


def test_a_column_whose_name_has_another_separator_is_read_if_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b\nthe cat\n")
    (shard,) = find_shards(tmp_path, "a.csv")
    assert [batch.texts.to_pylist() for batch in read_batches(shard, Reading("a;b", None, None))] == [["the cat"]]


BINARY = {
    "program": b"\x7fELF\x02\x01\x01" + bytes(9) + GARBAGE,
    "film": b"\0\0\0\x20ftypisom" + GARBAGE,
    "ids of tokens": struct.pack("<300H", *range(40_000, 40_300)),
    "lines of noise": b"\n".join([GARBAGE] * 9),
}


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.json", *(f"a.jsonl{one}" for one in COMPRESSIONS)])
@pytest.mark.parametrize("content", sorted(BINARY))
def test_a_binary_file_of_no_known_kind_is_refused_as_a_whole(tmp_path: Path, content: str, name: str) -> None:
    pack = COMPRESSIONS.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(pack(BINARY[content]))
    shards = find_shards(tmp_path, name)
    assert len(cut(shards, Digests(tmp_path, trust=False), 0, 1, 1).units) == 1
    assert isinstance(refusal(lambda: texts(tmp_path / name), "binary"), DamagedError)


WHOLE: dict[str, bytes] = {
    "a.jsonl": LINES,
    "a.json": json.dumps([{"text": TEXT}]).encode(),
    "a.txt": TEXT.encode(),
    "a.csv": f"text\n{TEXT}\n".encode(),
    "a.parquet": PARQUET,
    "a.arrow": FILE,
    "stream.arrow": STREAM,
    **{f"a.jsonl{suffix}": pack(LINES) for suffix, pack in COMPRESSIONS.items()},
    **{f"a.txt{suffix}": pack(TEXT.encode()) for suffix, pack in COMPRESSIONS.items()},
}
TWO = [TEXT, TEXT]
PLAIN = {"compression": None, "use_dictionary": False}
WRITERS: dict[str, Callable[[pa.Table, io.BytesIO], object]] = {
    "parquet": pq.write_table,
    "parquet with indexes": lambda table, file: pq.write_table(
        table, file, write_page_index=True, row_group_size=99, **PLAIN
    ),
    "parquet with bloom filters": lambda table, file: pq.write_table(
        table, file, bloom_filter_options={"text": {"ndv": 99999}}, **PLAIN
    ),
    "arrow": lambda table, file: feather.write_feather(table, file, compression="zstd"),
    "arrow of dictionaries": lambda table, file: feather.write_feather(
        pa.table({"text": table["text"].cast(pa.string()).dictionary_encode()}), file, chunksize=99
    ),
}
"""How tables are written as files that have their metadata at their end."""
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], dict[str, list[str] | str]]] = {
    "empty": (lambda _: b"", {"a.jsonl": [], "a.json": [], "a.txt": [], "a.csv": [], "*": "damaged"}),
    "cut": (
        lambda whole: whole[:-9],
        {"a.jsonl": "where the file was cut off", "a.txt": [TEXT[:-9]], "a.csv": [TEXT[:-8]], "*": "damaged"},
    ),
    "zeros behind": (
        lambda whole: whole + bytes(512),
        {
            "a.jsonl": "512 zero bytes",
            "a.json": "behind the array",
            "a.csv": "ends with zero bytes",
            "a.txt": [TEXT + "\0" * 512],
            "stream.arrow": [TEXT],
            **{f"a.{name}.{suffix}": [TEXT] for name in ("jsonl", "txt") for suffix in ("gz", "bz2", "xz")},
            "*": "damaged",
        },
    ),
    "garbage behind": (
        lambda whole: whole + GARBAGE,
        {
            "a.jsonl": "expected UTF-8",
            "a.json": "behind the array",
            "a.txt": "binary",
            "a.csv": "binary",
            "*": "damaged",
        },
    ),
    "garbage in front": (
        lambda whole: GARBAGE + whole,
        {"a.jsonl": "binary", "a.json": "binary", "a.txt": "binary", "a.csv": "binary", "*": "damaged"},
    ),
    "zeros in front": (
        lambda whole: bytes(512) + whole,
        {
            "a.jsonl": "512 zero bytes",
            "a.json": "512 zero bytes",
            "a.txt": ["\0" * 512 + TEXT],
            "a.csv": "missing",
            "*": "damaged",
        },
    ),
    "two": (
        lambda whole: whole + whole,
        {
            "a.json": "behind the array",
            "a.txt": [TEXT + TEXT],
            "a.csv": [TEXT, "text", TEXT],
            **{f"a.txt{suffix}": [TEXT + TEXT] for suffix in COMPRESSIONS},
            **{f"a.{name}": TWO for name in ("jsonl", *(f"jsonl{suffix}" for suffix in COMPRESSIONS))},
            "*": "behind",
        },
    ),
}
"""What happens to whole files, and what is read then, or a word of the refusal, by the file's name."""


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_read_as_other_tools_read_it_or_refused(tmp_path: Path, damage: str, name: str) -> None:
    change, outcomes = DAMAGES[damage]
    path = tmp_path / name
    path.write_bytes(change(WHOLE[name]))
    expected = outcomes.get(name, outcomes["*"])
    if isinstance(expected, str):
        refusal(lambda: texts(path), expected)
    else:
        assert texts(path) == expected


@pytest.mark.parametrize("n_first", [0, 1, 3000])
@pytest.mark.parametrize("n_second", [0, 1, 3000])
@pytest.mark.parametrize("write", sorted(WRITERS))
def test_a_table_behind_another_one_is_refused_and_each_alone_is_read(
    tmp_path: Path, write: str, n_first: int, n_second: int
) -> None:
    path = tmp_path / f"a.{write.split()[0]}"
    first, second = ([f"PAR1PAR1 {i} ARROW1" for i in range(n)] for n in (n_first, n_second))
    files = [_written(lambda file: WRITERS[write](pa.table({"text": some}), file)) for some in (first, second)]  # noqa: B023
    path.write_bytes(files[0])
    assert texts(path) == first
    path.write_bytes(files[0] + files[1])
    refusal(lambda: texts(path), "behind")


@pytest.mark.parametrize("name", [name for name in WHOLE if name.startswith("a.jsonl")])
@pytest.mark.parametrize("between", [b"", bytes(8), bytes(70_000)], ids=["nothing", "8 zeros", "70,000 zeros"])
def test_all_members_of_a_compressed_file_are_read(tmp_path: Path, name: str, between: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(WHOLE[name] + between + WHOLE[name])
    if between and name in ("a.jsonl", "a.jsonl.zst"):
        refusal(lambda: texts(path), "zero bytes" if name == "a.jsonl" else "damaged")
    else:
        assert texts(path) == TWO


DROP_NAMES = {"drop.csv": {"lines"}, "drop.parquet": {"parquet"}}
TOKENIZER_NAMES = ["tokenizer.json", "vocab.tiktoken", "spiece.model", "tekken.json", "vocab.json", "model.gguf"]


@pytest.mark.parametrize("name", DROP_NAMES)
@pytest.mark.parametrize("content", CONTENTS)
def test_a_drop_list_of_another_kind_is_named_for_what_it_is(tmp_path: Path, content: str, name: str) -> None:
    data, word = CONTENTS[content]
    (tmp_path / name).write_bytes(data)
    is_right = content in DROP_NAMES[name]
    error = refusal(lambda: DropList.read(tmp_path, name, has_ids=True), "expected the columns" if is_right else word)
    assert isinstance(error, CorpusError) and error.code == ("TM214" if content == "pointer" else "TM211")


@pytest.mark.parametrize(("text", "word"), [("id;reason\na;b\n", "commas"), ("id,reason\na,b\n\0\0", "zero bytes")])
def test_a_drop_list_of_another_form_is_named(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "drop.csv").write_text(text)
    refusal(lambda: DropList.read(tmp_path, "drop.csv", has_ids=True), word)


@pytest.mark.parametrize("content", sorted(CONTENTS.keys() - {"parquet"}))
def test_counts_of_another_kind_are_named_for_what_they_are(tmp_path: Path, content: str) -> None:
    data, word = CONTENTS[content]
    (tmp_path / "counts.parquet").write_bytes(data)
    error = refusal(lambda: read_counts(tmp_path / "counts.parquet"), word)
    assert error.code == ("TM214" if content == "pointer" else "TM303")


@pytest.mark.parametrize("name", TOKENIZER_NAMES)
@pytest.mark.parametrize("content", CONTENTS)
def test_a_tokenizer_of_another_kind_is_named_for_what_it_is(tmp_path: Path, content: str, name: str) -> None:
    data, word = CONTENTS[content]
    (tmp_path / name).write_bytes(data)
    (tmp_path / "merges.txt").write_bytes(b"#version: 0.2\n")
    is_binary = name in ("spiece.model", "model.gguf")
    if (content == "lines" and not is_binary) or (content == "gguf" and name == "model.gguf"):
        word = name  # a file of the right kind with other values
    error = refusal(lambda: read_form(tmp_path / name, "gpt2"), word)
    assert error.code == ("TM214" if content == "pointer" else "TM301")


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("tokenizer.model", "IQ== 0\nIg== 1\n", "ends with .tiktoken"),
        ("tekken.json", "IQ== 0\nIg== 1\n", "ends with .tiktoken"),
        ("tokenizer.json", "IQ== 0\nIg== 1\n", "ends with .tiktoken"),
        ("tokenizer.json", '{"a": 0, "b": 1}', "is no tokenizer.json"),
        ("tokenizer.json", '{"config": {}, "vocab": [], "special_tokens": []}', "is no tokenizer.json"),
        ("vocab.txt", "[PAD]\n[UNK]\nthe\n", "save_pretrained"),
        ("merges.txt", "#version: 0.2\nt h\n", "tokenmill convert"),
    ],
)
def test_a_tokenizer_under_the_name_of_another_is_named(tmp_path: Path, name: str, content: str, word: str) -> None:
    (tmp_path / name).write_text(content)
    refusal(lambda: read_form(tmp_path / name), word)


@pytest.mark.parametrize(
    "name", ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"]
)
@pytest.mark.parametrize("content", ["gzip", "html", "pointer", "utf-16 with mark", "zeros"])
def test_a_file_beside_a_tokenizer_is_named_for_what_it_is(tmp_path: Path, content: str, name: str) -> None:
    trained(["the cat"], vocab_size=257).save(tmp_path)
    data, word = CONTENTS[content]
    (tmp_path / name).write_bytes(data)
    refusal(lambda: Tokenizer.load(tmp_path), word)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.tiktoken", "tekken.json", "vocab.json", "merges.txt"])
def test_a_tokenizer_with_a_byte_order_mark_is_refused_as_other_programs_refuse_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "vocab.json").write_bytes(b"{}")
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf{}")
    path = tmp_path / ("vocab.json" if name == "merges.txt" else name)
    refusal(lambda: read_form(path, "gpt2"), "byte order mark")


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("ORC is a format of tables.", False),
        ("PAR1 and PAR2 are archives. GGUF is none.", False),
        ("<?xml version='1.0'?><a/>", False),
        ("GIF89a is a version of a format.", False),
        ("PK", False),
        ("a\0b", False),
        ("é" * 3000, False),
        ("BZh91AY&SY", True),
        ("\0" * 9, True),
    ],
)
def test_a_text_that_begins_with_letters_of_a_mark_is_a_text(tmp_path: Path, text: str, is_refused: bool) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    if is_refused:
        refusal(lambda: texts(tmp_path / "a.txt"), "expected plain text")
    else:
        assert texts(tmp_path / "a.txt") == [text]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.json", *(f"a.txt{one}" for one in COMPRESSIONS)])
def test_a_byte_order_mark_is_no_part_of_the_first_document(tmp_path: Path, name: str) -> None:
    pack = COMPRESSIONS.get(Path(name).suffix, bytes)
    content = TEXT.encode() if ".txt" in name else LINES
    (tmp_path / name).write_bytes(pack(b"\xef\xbb\xbf" + content))
    assert texts(tmp_path / name) == [TEXT]
    (tmp_path / name).write_bytes(pack(b"\xef\xbb\xbf"))
    assert texts(tmp_path / name) == []


def test_a_mark_is_told_from_any_number_of_bytes_behind_it() -> None:
    for data, word in CONTENTS.values():
        if word not in ("tar archive", "plain text", "HTML", "zeros"):
            found = [content_of(data[:n_bytes]) for n_bytes in range(16, min(len(data), 900))]
            assert all(one is None or word in one.what or one.name == "text" for one in found), word
