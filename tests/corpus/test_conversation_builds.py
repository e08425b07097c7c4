"""Builds of conversations: counted, planned, left out, dropped, digested and verified as documents of texts are."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.builders.shards import conversation_table
from tests.builders.teams import build, cli
from tests.conftest import Project, make_project
from tokenmill.corpus.conversations import of_messages
from tokenmill.dataset.manifest import read_manifest
from tokenmill.layout import PROVENANCE_FILE

TEMPLATE = {"user": ["{instruction}", "Input:\n{input}"], "assistant": "{output}"}
ROWS = [
    {
        "id": f"r{i}",
        "messages": [{"role": "user", "content": f"{i} and {i}?"}, {"role": "assistant", "content": f"{2 * i}"}],
    }
    for i in range(40)
]
BAD = {"id": "bad", "messages": [{"role": "user", "content": "x"}, {"role": "bot", "content": "y"}]}


def write(project: Project, name: str, rows: list[dict[str, Any]]) -> Path:
    path = project.root / "data/raw" / name
    if name.endswith(".parquet"):
        pq.write_table(conversation_table(rows), path)
    else:
        path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project of messages in two formats, that was built."""
    project = make_project(tmp_path_factory.mktemp("conversations") / "project")
    shutil.rmtree(project.root / "data/raw")
    (project.root / "data/raw").mkdir()
    write(project, "a.jsonl", ROWS[:20])
    write(project, "b.parquet", ROWS[20:])
    project.set(
        source__messages_column="messages",
        train_vocab__special_tokens=["<|im_start|>", "<|im_end|>"],
        encode__end_of_document=None,
        encode__chat={"template": "chatml"},
    )
    build(project)
    yield project


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    """A copy of it."""
    shutil.copytree(made.root, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")


def chatml(conversation: bytes) -> str:
    messages = json.loads(conversation)["messages"]
    return "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)


def index(project: Project) -> list[dict[str, Any]]:
    return pq.read_table(project.root / "data/tables/documents.parquet").to_pylist()


def test_the_digest_of_a_conversation_is_that_of_its_canonical_json(made: Project) -> None:
    found = {row["id"]: (row["sha256"], row["n_bytes"]) for row in index(made)}
    expected = {row["id"]: of_messages(row["messages"], None) for row in ROWS}
    assert found == {id: (hashlib.sha256(one.json).digest(), len(chatml(one.json))) for id, one in expected.items()}


def test_verify_reads_conversations_again_as_the_manifest_says(made: Project) -> None:
    assert cli(made, "verify").returncode == 0
    manifest = read_manifest(made.root / "data/tokens")
    assert manifest.source is not None and manifest.source.conversations is not None
    assert manifest.source.conversations.messages_column == "messages"


def test_plan_doctor_and_a_second_build_take_them_as_documents(made: Project) -> None:
    assert re.search(r"^documents +40 +40 +40$", cli(made, "plan").stdout, re.MULTILINE)
    assert "the first documents of 2 files can be read" in cli(made, "doctor").stdout
    assert set(made.actions(build(made)).values()) <= {"up to date"}


def test_the_provenance_of_counts_says_how_they_were_read(made: Project) -> None:
    found = json.loads((made.root / PROVENANCE_FILE).read_text(encoding="utf-8"))
    assert found["conversations"] == {"column": "messages", "tools_column": None, "template": None}
    assert all(re.fullmatch(r"(\d+) and \1\?\n\d+", text) for text in found["samples"].values())


def test_bad_conversations_go_to_the_quarantine_with_their_reason(project: Project) -> None:
    write(project, "a.jsonl", [*ROWS[:20], BAD])
    write(project, "b.parquet", [BAD, *ROWS[20:]])
    refused = cli(project, "build")
    assert refused.returncode == 2
    reason = "message 1: role: expected one of system, developer, user, assistant, tool; found 'bot'."
    for place in ("a.jsonl, line 21", "b.parquet, row 0"):
        assert f"data/raw/{place}: {reason}" in refused.stderr
    project.set(source__on_bad_document="quarantine", source__bad_documents_max=2)
    build(project)
    rows = pq.read_table(project.root / "data/quarantine/quarantine.parquet").to_pylist()
    assert [(row["shard"], row["row"], row["line"], row["reason"]) for row in rows] == [
        ("data/raw/a.jsonl", 20, 21, reason),
        ("data/raw/b.parquet", 0, None, reason),
    ]
    assert json.loads(rows[0]["raw"]) == BAD
    assert msgspec.json.decode(rows[1]["raw"]) == {"messages": BAD["messages"]}
    assert len(index(project)) == 40
    assert cli(project, "verify").returncode == 0


def test_conversations_are_dropped_by_id_and_by_the_digest_of_their_json(project: Project) -> None:
    digest = hashlib.sha256(of_messages(ROWS[30]["messages"], None).json).hexdigest()
    (project.root / "drop.csv").write_text(f"id,digest,reason\nr3,,asked\n,{digest},benchmark\n", encoding="utf-8")
    project.set_drop("drop.csv")
    build(project)
    dropped = pq.read_table(project.root / "data/tables/dropped.parquet").to_pylist()
    assert [(row["shard"], row["row"], row["id"], row["reason"]) for row in dropped] == [
        ("data/raw/a.jsonl", 3, "r3", "asked"),
        ("data/raw/b.parquet", 10, "r30", "benchmark"),
    ]
    assert dropped[1]["sha256"].hex() == digest
    assert {row["id"] for row in index(project)} == {row["id"] for row in ROWS} - {"r3", "r30"}
    assert cli(project, "verify").returncode == 0


def test_named_sources_read_messages_and_templates_side_by_side(project: Project) -> None:
    alpaca = [
        {"id": f"t{i}", "instruction": f"Add {i}", "input": "" if i % 2 else "1", "output": "2"} for i in range(9)
    ]
    (project.root / "data/raw/more").mkdir()
    write(project, "more/t.jsonl", alpaca)
    sources = {"chat": {"glob": "data/raw/*"}, "alpaca": {"glob": "data/raw/more/*", "template": TEMPLATE}}
    project.set(source__messages_column="messages")
    path = project.root / "params.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("sources: {}", f"sources: {json.dumps(sources)}"), encoding="utf-8"
    )
    build(project)
    manifest = read_manifest(project.root / "data/tokens")
    found = {one.name: one.conversations for one in manifest.sources}
    assert found["alpaca"] is not None and found["alpaca"].template == {
        "user": ["{instruction}", "Input:\n{input}"],
        "assistant": ["{output}"],
    }
    assert {one.name: one.n_documents for one in manifest.sources} == {"chat": 40, "alpaca": 9}
    assert cli(project, "verify").returncode == 0


@pytest.mark.slow
def test_a_changed_template_reads_the_documents_anew(project: Project) -> None:
    shutil.rmtree(project.root / "data/raw")
    (project.root / "data/raw").mkdir()
    write(project, "t.jsonl", [{"id": f"{i}", "a": f"Add {i}", "b": "2"} for i in range(9)])
    project.set(source__messages_column=None, source__template={"user": "{a}", "assistant": "{b}"})
    build(project)
    before = index(project)
    project.set(source__template={"user": "Please: {a}", "assistant": "{b}"})
    build(project)
    after = index(project)
    assert [row["id"] for row in before] == [row["id"] for row in after]
    assert all(one["sha256"] != other["sha256"] for one, other in zip(before, after, strict=True))


def test_the_manifest_of_texts_does_not_speak_of_conversations(project: Project) -> None:
    shutil.rmtree(project.root / "data/raw")
    (project.root / "data/raw").mkdir()
    project.write("a.jsonl", ["the cat sat", "the dog sat"])
    project.set(source__messages_column=None, encode__chat=None)
    build(project)
    assert b"conversations" not in (project.root / "data/tokens/manifest.json").read_bytes()
    assert b"conversations" not in (project.root / PROVENANCE_FILE).read_bytes()
