"""source.min_chars leaves short documents out of everything, and counts them."""

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DOCUMENTS, Project
from tests.golden.projects import PROJECTS
from tokenmill.config.source_params import Source
from tokenmill.config.sources import Conversations, DocumentSource, Reading
from tokenmill.corpus.dropped import unit_dropped
from tokenmill.corpus.filter import Filters, left_out
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Piece, Unit
from tokenmill.dataset.manifest import read_manifest, write_manifest
from tokenmill.errors import ParamsError
from tokenmill.features.drop.filter.drop_list import DropLine, DropList
from tokenmill.features.min_chars.filter import MinChars
from tokenmill.filters import filters_of
from tokenmill.layout import PAGE_FILE
from tokenmill_reader.manifest import read_manifest as read_by_readers

TEXTS = ["", "abc", "a b ", "e\u0301e\u0301", "🙂🙂🙂", "👨\u200d👩\u200d👧", "éééé", "\n\n\n\n", "four and more"]
SHORT = ["", "abc", "🙂🙂🙂"]  # of fewer than four characters, though 🙂🙂🙂 has twelve bytes


def test_characters_are_code_points() -> None:
    found = left_out({"min_chars": MinChars(4)}, "a", Batch(0, pa.array(TEXTS, pa.large_string()), None))
    assert [TEXTS[i] for i in found] == SHORT


@given(st.lists(st.none() | st.text(max_size=6)), st.integers(1, 7))
def test_each_text_is_judged_by_its_length_in_python(texts: list[str | None], n: int) -> None:
    found = left_out({"min_chars": MinChars(n)}, "a", Batch(3, pa.array(texts, pa.large_string()), None))
    assert list(found) == [i for i, text in enumerate(texts) if text is not None and len(text) < n]


def _jsonl(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def _csv(texts: list[str]) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["text"], *([text] for text in texts)])
    return file.getvalue().encode()


def _parquet(texts: list[str]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), file)
    return file.getvalue()


FORMATS: dict[str, Callable[[list[str]], bytes]] = {
    "a.jsonl": _jsonl,
    "a.json": lambda texts: json.dumps([{"text": text} for text in texts]).encode(),
    "a.csv": _csv,
    "a.parquet": _parquet,
    "a.txt": lambda texts: "|".join(texts).encode(),
}


def _read(
    folder: Path, files: dict[str, bytes], filters: Filters, conversations: Conversations | None = None
) -> tuple[list[str], GoodDocuments]:
    """The texts of files that no filter leaves out, and their documents, with the others in the folder."""
    source = DocumentSource(None, (), Reading("text", None, "|", conversations), "as_text", 1.0, None)
    pieces = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        pieces.append(Piece(Shard(folder / name, name, len(content), source), None, ""))
    lenient = Source(on_bad_document="quarantine")
    documents = GoodDocuments(
        Unit("u", "u", tuple(pieces)), lenient, UNBOUNDED, lambda *_: None, filters, folder=folder
    )
    return [text for batch in documents for text in batch.texts.to_pylist()], documents


@pytest.mark.parametrize("name", FORMATS)
def test_short_documents_of_every_format_are_left_out(name: str, tmp_path: Path) -> None:
    texts, documents = _read(tmp_path, {name: FORMATS[name](TEXTS)}, {"min_chars": MinChars(4)})
    assert texts == [text for text in TEXTS if text not in SHORT]
    [left] = unit_dropped(tmp_path)
    assert left["row"].to_pylist() == [i for i, text in enumerate(TEXTS) if text in SHORT]
    assert {*left["reason"].to_pylist(), *left["by"].to_pylist()} == {"min_chars"}
    assert documents.dropped.n_by_piece == [len(left)] and documents.dropped.reasons == {"min_chars": len(left)}


def test_a_conversation_has_the_characters_of_its_contents_and_of_the_line_ends_between_them(tmp_path: Path) -> None:
    def conversation(*contents: str) -> dict[str, Any]:
        roles = ("user", "assistant")
        return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]}

    rows = [conversation("ab", "c"), conversation("ab", "cd"), conversation("abcde"), conversation("🙂", "", "ab")]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    texts, _ = _read(tmp_path, {"a.jsonl": content}, {"min_chars": MinChars(5)}, Conversations("messages", None, None))
    assert texts == ["ab\ncd", "abcde", "🙂\n\nab"]
    [dropped] = unit_dropped(tmp_path)
    assert dropped["row"].to_pylist() == [0]
    assert dropped["sha256"][0].as_py() not in (hashlib.sha256(b"").digest(), hashlib.sha256(b"ab\nc").digest())


def test_bad_documents_go_to_the_quarantine_and_the_drop_list_comes_first(tmp_path: Path) -> None:
    content = b'{"text": "ab"}\n{"text": null}\n{"text": "cd"}\n{"text": "long enough"}\n{"text": "taken down"}\n'
    drop = DropList(
        [DropLine("line 2", None, _sha256("ab"), "asked"), DropLine("line 3", None, _sha256("taken down"), "x")]
    )
    texts, documents = _read(tmp_path, {"a.jsonl": content}, {"drop": drop, "min_chars": MinChars(4)})
    assert texts == ["long enough"]
    assert [bad.row for bad in documents.left] == [1]
    [dropped] = unit_dropped(tmp_path)
    assert dropped["row"].to_pylist() == [0, 2, 4] and dropped["reason"].to_pylist() == ["asked", "min_chars", "x"]


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


@pytest.mark.parametrize("value", [0, -1, True, "5", 2.0, None, []])
def test_a_manifest_with_another_value_is_refused(value: Any) -> None:
    with pytest.raises(ParamsError, match=r"source\.min_chars: found .*: expected a whole number of characters"):
        filters_of({"min_chars": value})
    with pytest.raises(ParamsError, match="found 'other'; installed are: none"):
        filters_of({"other": 1})


def dropped(project: Project) -> list[tuple[Any, ...]]:
    rows = pq.read_table(project.root / "data/tables/dropped.parquet").to_pylist()
    return [(row["shard"].removeprefix("data/raw/"), row["row"], row["reason"], row["by"]) for row in rows]


def _verdict(project: Project) -> tuple[int, str]:
    done = project.cli("verify")
    return done.returncode, done.stdout


def test_a_build_leaves_short_documents_out_and_verify_judges_them_by_the_recorded_number(project: Project) -> None:
    project.set(source__min_chars=16, run__report_page=True)
    project.set_drop("drop.csv")
    (project.root / "drop.csv").write_text("id,reason\na.jsonl-1,asked\n", encoding="utf-8")
    said = project.build().stderr
    assert "encode: left out 3 documents by source.drop and source.min_chars: asked 1, min_chars 2" in said
    expected = [("a.jsonl", 1, "asked", "id"), ("a.jsonl", 2, "min_chars", "min_chars")]
    assert dropped(project) == [*expected, ("b.jsonl", 2, "min_chars", "min_chars")]
    tokens = project.root / "data/tokens"
    manifest = read_manifest(tokens)
    assert (manifest.n_documents, manifest.n_dropped) == (3, {"asked": 1, "min_chars": 2})
    assert manifest.filters == {"min_chars": 16}
    report = json.loads((project.root / "data/report/report.json").read_text())
    assert (report["documents"], report["documents_dropped"]) == (3, 3)
    page = (project.root / PAGE_FILE).read_text(encoding="utf-8")
    for reason, n in manifest.n_dropped.items():
        assert f'<tr><td>{reason}</td><td>by a filter</td><td class="n">{n}</td></tr>' in page
    assert json.loads((project.root / "data/counts/report.json").read_text())["documents"] == 3
    assert "| left out, `min_chars` | 2 documents |" in (tokens / "README.md").read_text()
    assert read_by_readers(tokens).n_dropped == manifest.n_dropped
    assert _verdict(project)[0] == 0
    project.set(source__min_chars=0)  # verify goes by the manifest
    assert _verdict(project)[0] == 0

    write_manifest(manifest.model_copy(update={"filters": {"min_chars": 17}}), tokens)
    code, words = _verdict(project)  # "naïve café – 東京 🙂" has 17 characters, "the the the the" 15
    assert code == 0, words
    write_manifest(manifest.model_copy(update={"filters": {"min_chars": 18}}), tokens)
    code, words = _verdict(project)
    assert code == 1 and "documents/b.jsonl.parquet" in words and "documents/a.jsonl.parquet" not in words
    by = "not left out by dropped.parquet or min_chars."
    assert f"b.jsonl: row 1: the dataset holds 1 row more than there are documents that are {by}" in words
    write_manifest(manifest.model_copy(update={"filters": {"min_chars": 15}}), tokens)
    code, words = _verdict(project)
    assert code == 1 and "documents/b.jsonl.parquet" in words and "documents/a.jsonl.parquet" not in words
    assert f"row 2: the document is not in the dataset, whose file for it holds 2, and is {by}" in words
    write_manifest(manifest.model_copy(update={"filters": {}}), tokens)
    code, words = _verdict(project)
    assert code == 1 and "'min_chars' left out, which is no filter of manifest.json" in words
    write_manifest(manifest.model_copy(update={"filters": manifest.filters | {"others": 1}}), tokens)
    code, words = _verdict(project)
    assert code == 2 and "not checked: whether the filters of manifest.json left the right documents out" in words


def test_a_build_without_it_has_no_filters_in_its_manifest(project: Project) -> None:
    project.set(source__min_chars=0)
    project.build()
    assert "filters" not in json.loads((project.root / "data/tokens/manifest.json").read_bytes())


def test_all_documents_may_be_left_out_as_by_a_list_that_names_all(new_project: Callable[[str], Project]) -> None:
    listed, short = new_project("listed"), new_project("short")
    listed.set_drop("drop.csv")
    ids = [f"{shard}-{row},x\n" for shard, texts in DOCUMENTS.items() for row in range(len(texts))]
    (listed.root / "drop.csv").write_text("id,reason\n" + "".join(ids), encoding="utf-8")
    short.set(source__min_chars=10_000)
    for project, what in ((listed, "drop: x"), (short, "min_chars: min_chars")):
        assert f"encode: left out 6 documents by source.{what} 6" in project.build().stderr
    for name in (
        "data/counts/counts.parquet",
        "data/tokenizer/tokenizer.json",
        "data/tokens/documents/a.jsonl.parquet",
    ):
        assert listed.outputs()[name] == short.outputs()[name], name


@pytest.mark.slow
def test_another_number_redoes_count_and_encode_and_plan_knows(project: Project) -> None:
    project.build()
    before = project.outputs()
    project.set(source__min_chars=16)
    plan = json.loads(project.cli("plan", "--json").stdout)["result"]
    assert [stage["n_units_todo"] for stage in plan["stages"] if stage["stage"] in ("count", "encode")] == [2, 2]
    assert "parameter source.min_chars changed" in project.cli("status").stdout
    said = project.build().stderr
    assert "units to do" not in said, "none is finished already"
    assert project.run("dvc", "status").stdout.strip() == "Data and pipelines are up to date."
    project.set(source__min_chars=0)
    project.build()
    assert project.outputs() == before


@pytest.mark.slow
def test_outputs_are_those_of_a_corpus_without_the_documents(new_project: Callable[[str], Project]) -> None:
    one, other = new_project("one"), new_project("other")
    texts = [f"document {i} {'é' * (i % 7)}" for i in range(40)]
    one.write("c.jsonl", texts)
    path = other.write("c.jsonl", texts)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line, text in zip(lines, texts, strict=True) if len(text) >= 13))
    for shard, documents in DOCUMENTS.items():
        path = other.write(shard, documents)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line, text in zip(lines, documents, strict=True) if len(text) >= 13))
    one.set(source__min_chars=13)
    for project in (one, other):
        project.build()
    names = [name for name in one.outputs() if name.endswith(".parquet") and "tables/d" not in name]
    for name in ("data/tokenizer/tokenizer.json", *names):
        assert one.outputs()[name] == other.outputs()[name], name


@pytest.mark.slow
def test_units_are_taken_over_with_the_documents_that_were_too_short(project: Project) -> None:
    project.set(source__min_chars=16)
    project.build()
    before = project.outputs()
    shutil.rmtree(project.root / ".tokenmill/units")
    project.write("c.jsonl", ["new and long enough"])
    assert project.build().returncode == 0
    (project.root / "data/raw/c.jsonl").unlink()
    shutil.rmtree(project.root / ".dvc/cache/runs")
    project.build()
    assert project.outputs() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n"),
    [("conversations", 40), ("answers-alone", 40), ("pairs", 25), ("imported-of-the-library", 40), ("mixed", 40)],
)
def test_datasets_of_every_kind_are_verified_without_short_documents(name: str, n: int, project: Project) -> None:
    PROJECTS[name](project)
    project.set(source__min_chars=n)
    project.build()
    manifest = read_manifest(project.root / "data/tokens")
    assert manifest.n_documents > 0 and manifest.n_dropped["min_chars"] == len(dropped(project)) > 0
    code, words = _verdict(project)
    assert code == 0, words
