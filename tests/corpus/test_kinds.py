"""Formats of files, by their names and by the parameter."""

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.builders.shards import array, error_of, jsonl, read, shard, texts_of, zstd
from tests.conftest import Project
from tokenmill.config.sources import Column, Conversations, Reading
from tokenmill.corpus.bad_documents import BadDocument
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.errors import DamagedError

ROWS = [("a", "the cat"), ("b", "the dog"), ("c", "")]


@pytest.mark.parametrize("pack", [gzip.compress, zstd, bz2.compress, lzma.compress], ids=["gz", "zst", "bz2", "xz"])
def test_a_compressed_text_is_read_as_the_text(tmp_path: Path, pack: Any, request: pytest.FixtureRequest) -> None:
    suffix = request.node.callspec.id
    (tmp_path / f"a.txt.{suffix}").write_bytes(pack("naïve one|two".encode()))
    assert texts_of(read(tmp_path / f"a.txt.{suffix}")) == ["naïve one|two"]
    assert texts_of(read(tmp_path / f"a.txt.{suffix}", separator="|")) == ["naïve one", "two"]
    limits = Limits(document_bytes_max=8, block_bytes_max=None)
    assert "longer than 8 bytes" in error_of(tmp_path / f"a.txt.{suffix}", limits=limits)


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress], ids=["bz2", "xz"])
def test_a_cut_compressed_file_and_one_of_another_kind_are_damaged(
    tmp_path: Path, pack: Any, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / f"a.jsonl.{request.node.callspec.id}"
    path.write_bytes(pack(jsonl(ROWS * 100))[:-9])
    assert "damaged or truncated" in error_of(path)
    path.write_bytes(jsonl(ROWS))
    assert f"is plain text, not compressed; expected a {path.suffix} file" in error_of(path)


def test_a_dictionary_of_xz_that_is_too_large_is_named_and_no_damage(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 26}]
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress(jsonl(ROWS), filters=filters))
    limits = Limits(document_bytes_max=None, block_bytes_max=1 << 24)
    assert "xz dictionary" in error_of(tmp_path / "a.jsonl.xz", limits=limits)
    assert texts_of(read(tmp_path / "a.jsonl.xz", limits=Limits(None, 1 << 27))) == [text for _, text in ROWS]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("[]", []),
        (" [ ] \n", []),
        ('[{"text": "a"}]', ["a"]),
        ('\ufeff\n[{"text": "a"}\n,\n{"text": "b"}]\n', ["a", "b"]),
        ('{\n"text": "a"\n}{"text": "b"} \n', ["a", "b"]),
        (' {"text": "a"}\n\n{"text": "b"}', ["a", "b"]),
    ],
)
def test_a_json_file_is_an_array_objects_or_lines(tmp_path: Path, content: str, found: list[str]) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    assert texts_of(read(tmp_path / "a.json", id_column=None)) == found


WRAPPERS = {
    **{
        key: f'{{"{key}": ROWS}}' for key in ("conversations", "data", "examples", "instances", "rows", "train", 'é\\"')
    },
    "values before": '\ufeff{\n"version": "1.0, [{",\n "n": -2.5e3, "is": true, "of": null,"data" : ROWS}\n',
    "values behind": '{"data": ROWS , "license": "[{ \\" }", "n": 2}',
}


@pytest.mark.parametrize("content", WRAPPERS.values(), ids=WRAPPERS.keys())
@pytest.mark.parametrize("n_characters", [1, 3000, 1 << 19], ids=["short", "long", "over blocks"])
def test_rows_under_the_key_of_one_object_are_documents(tmp_path: Path, content: str, n_characters: int) -> None:
    texts = ["b" * n_characters, "]}{[", "c" * n_characters]
    rows = [{"id": i, "text": text, "more": [{"text": 1}]} for i, text in enumerate(texts)]
    for indent in (None, 1):
        (tmp_path / "a.json").write_text(content.replace("ROWS", json.dumps(rows, indent=indent)), encoding="utf-8")
        assert texts_of(read(tmp_path / "a.json", id_column=None)) == texts


OF_MESSAGES = Conversations("messages", None, None)


def test_the_object_around_rows_is_no_document_of_kept_columns_or_conversations(tmp_path: Path) -> None:
    path, turn = tmp_path / "a.json", {"role": "user", "content": "Hi"}
    path.write_text(json.dumps({"lang": "x", "text": "x", "data": [{"lang": "en", "messages": [turn]}]}))
    kept = Column("lang", "keep_columns")
    [batch] = read_batches(shard(path), Reading("text", conversations=OF_MESSAGES, columns=(kept,)))
    assert batch.messages.to_pylist() == ['{"messages":[{"role":"user","content":"Hi"}]}']
    assert batch.columns[kept].to_pylist() == ['"en"']
    path.write_text(json.dumps({"messages": [turn]}))  # one document
    assert texts_of(list(read_batches(shard(path), Reading("text", conversations=OF_MESSAGES)))) == ["Hi"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"rows": [{"text": "a"}], "features": [{"name": "text"}]}', "elements of 'rows', write this array alone"),
        ('{"data": ["a", "b"]}', "elements of 'data', write this array alone"),
        ('{"data": [{"text": "a"}]}\n{"data": [{"text": "b"}]}', "elements of 'data', write this array alone"),
        ('{"data": {"rows": [{"text": "a"}]}}', "elements of 'data.rows', write this array alone"),
        ('{"data": {"n": 1, "train": {"rows": [{"text": "a"}]}}}', "elements of 'data.train.rows'"),
        ('{"data": [{"text": "LONG"}], "more": {"text": "b"}}', "the end of the object that is around the array"),
        ('{"data": [{"text": "LONG"}], "text": "b"}', "the end of the object that is around the array"),
        ('{"data": [{"text": "LONG"}]', "the end of the object that is around the array"),
        ('{"data": [{"text": "LONG"}', "its array has no end"),
    ],
)
def test_rows_that_are_not_plainly_under_one_key_are_refused_in_one_line(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "a.json").write_text(content.replace("LONG", "b" * (1 << 20)))
    message = error_of(tmp_path / "a.json", id_column=None)
    assert words in message and "\n" not in message


@pytest.mark.parametrize(
    ("content", "bad"),
    [
        ('[{"text": "a"},,{"text": "b"}]', {1: "invalid JSON"}),
        ('[{"text": "a"}, {"text": "b"},]', {2: "invalid JSON"}),
        ('[{"text": 7}, "x", {"text": "b\n"}, {"text": "c"}]', {0: "an int", 1: "a string", 2: "invalid"}),
        ('{\n"text": "a"\n}\n{"text" "b"}', {1: "invalid JSON"}),
        ('{\n"text": "a"\n}\nmore', {1: "invalid JSON"}),
        ('{"data": [{"text": "a"}, {"text" "b"}, {"body": "c"}]}', {1: "invalid JSON", 2: "the key 'text' is missing"}),
    ],
)
def test_a_bad_element_is_told_by_its_row(tmp_path: Path, content: str, bad: dict[int, str]) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    found: list[BadDocument] = []
    read(tmp_path / "a.json", id_column=None, on_bad=found.append)
    assert [(one.row, one.line) for one in found] == [(row, None) for row in bad]
    assert all(words in one.reason for one, words in zip(found, bad.values(), strict=True))
    assert f"row {min(bad)}: " in error_of(tmp_path / "a.json", id_column=None)


def test_an_array_without_the_key_names_the_parameter(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"body": "a"}]')
    assert "Set source.text_column" in error_of(tmp_path / "a.json", id_column=None)


@pytest.mark.parametrize(
    "content", ['[{"text": "a"}', '[{"text": "a', '[{"text": "a"}] x', '{\n"text": "a', '[{"a": 1}}, 2]']
)
def test_an_array_or_object_without_an_end_is_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    (shard,) = find_shards(tmp_path, "a.json")
    with pytest.raises(DamagedError):
        list(read_batches(shard, Reading("text", None, None), on_bad=lambda _: None))


def test_an_element_beyond_the_limit_stops_the_reading_before_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"text": "a"}, {"text": "b" * 3_000_000}]))
    limits = Limits(document_bytes_max=1_000_000, block_bytes_max=None)
    assert "row 1: the document is longer" in error_of(tmp_path / "a.json", id_column=None, limits=limits)


@pytest.fixture
def code(project: Project) -> Project:
    """A project with files of code, each of which is a document, and one of JSON lines by another name."""
    for name in ("a.jsonl", "b.jsonl"):
        (project.root / "data/raw" / name).unlink()
    for name, text in {"src/a.py": "import a\n", "src/deep/b.py": "import b\n", "src/__init__.py": ""}.items():
        path = project.root / "data/raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (project.root / "data/raw/more.dat").write_bytes(jsonl(ROWS))
    sources = {
        "code": {"glob": "data/raw/**/*.py", "format": "text"},
        "more": {"glob": "data/raw/*.dat", "format": "jsonl"},
    }
    params = project.root / "params.yaml"
    text = params.read_text(encoding="utf-8")
    assert "sources: {}" in text
    params.write_text(text.replace("sources: {}", f"sources: {json.dumps(sources)}"), encoding="utf-8")
    return project


def ids_of(project: Project) -> list[str]:
    return sorted(pq.read_table(project.root / "data/tables/documents.parquet")["id"].to_pylist())


@pytest.mark.slow
def test_a_build_reads_files_of_any_name_as_the_parameter_says(code: Project) -> None:
    code.build()
    assert ids_of(code) == ["a", "b", "c", "src/a.py", "src/deep/b.py"]
    assert code.cli("verify").returncode == 0
    assert "src/a.py" in code.cli("locate", "--id", "src/a.py").stdout
    manifest = json.loads((code.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))
    assert {one["name"]: one["format"] for one in manifest["sources"]} == {"code": "text", "more": "jsonl"}
    assert code.cli("doctor").returncode == 0
    assert code.cli("plan").returncode == 0
    # The path is the id, so a renamed file is another document, though its bytes are the same.
    (code.root / "data/raw/src/a.py").rename(code.root / "data/raw/src/c.py")
    code.build()
    assert ids_of(code) == ["a", "b", "c", "src/c.py", "src/deep/b.py"]
    assert code.cli("verify").returncode == 0


def test_a_large_file_is_cut_where_the_parameter_says_that_it_has_lines(code: Project) -> None:
    code.set(source__unit_bytes_max=80, source__unit_bytes_min=0)
    code.build()
    names = [one["name"] for one in json.loads((code.root / "data/tokens/manifest.json").read_text())["shards"]]
    assert "documents/more.dat.00001.parquet" in names
    assert code.cli("verify").returncode == 0


_READER = """
import re, sys
from pathlib import Path
from tokenmill.config.sources import Column, Reading
from tokenmill.corpus.reader import find_shards, read_batches
peak_kb = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
for shard in find_shards(Path(sys.argv[1]), "*"):
    before = peak_kb()
    n = sum(batch.text_bytes for batch in read_batches(shard, Reading("text", "id", None)))
    print(n, peak_kb() - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_an_array(tmp_path: Path) -> None:
    rows = array([(str(i), f"{i:010}" * 100) for i in range(100_000)])
    (tmp_path / "a.json").write_text(rows)
    done = subprocess.run([sys.executable, "-c", _READER, tmp_path], check=True, capture_output=True, text=True)
    n_bytes, grown_kb = map(int, done.stdout.split())
    assert n_bytes == 100_000_000
    assert grown_kb < 60_000
