"""The file sets of real builds: each format holds the documents of its split, in the order and packing that was asked for."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tokenmill
from tests.builders.built_sets import items
from tests.builders.format_files import OF_TEXTS
from tests.builders.teams import build, cli
from tests.conftest import Project, make_project
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import ParamsError
from tokenmill_reader.order import Order, order_key

DOCUMENTS = {
    "a.jsonl": [f"the {n} cat sat on mat {n * n}" for n in range(40)],
    "b.jsonl": [f"dogs é {n} and œufs {'x ' * n}" for n in range(30)],
    "de/c.jsonl": [f"die Katze {n} saß auf der Matte" for n in range(20)] + ["the 7 cat sat on mat 49"],
}
SPLITS = {"train": 0.6, "validation": 0.2, "test": 0.2}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that is built with the documents' files alone."""
    project = make_project(tmp_path_factory.mktemp("sets") / "project", DOCUMENTS)
    build(project)
    return project


@pytest.fixture
def project(built: Project, tmp_path: Path) -> Project:
    """A copy of it, to change."""
    shutil.copytree(built.root, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")


def documents(project: Project) -> list[tuple[str, list[int]]]:
    """The ids and tokens of all documents, in the order of the dataset."""
    manifest = read_manifest(project.root / "data/tokens")
    tables = [pq.read_table(project.root / "data/tokens" / one.name, partitioning=None) for one in manifest.shards]
    return [(row["id"], row["input_ids"]) for table in tables for row in table.to_pylist()]


def index(project: Project) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(project.root / "data/tables/documents.parquet").to_pylist()
    return rows


def ids(project: Project, format: str, split: str | None = None, epoch: int | None = None) -> list[list[int]]:
    """The tokens of all items of a set, in order."""
    sets = read_manifest(project.root / "data/tokens").sets
    one = next(one for one in sets if (one.format, one.split, one.epoch) == (format, split, epoch))
    return [row["input_ids"] for part in items(project, one) for row in part]


@pytest.mark.slow
def test_every_format_holds_all_documents_in_the_order_of_the_dataset(project: Project) -> None:
    formats = ["parquet", *(name for name in OF_TEXTS if name != "parquet")]
    project.set(encode__formats=formats)
    build(project)
    expected = [tokens for _, tokens in documents(project)]
    for name in formats[1:]:
        assert ids(project, name) == expected, name
    assert not (project.root / "data/tokens/parquet").exists()  # the documents' own files are that


@pytest.mark.slow
def test_splits_follow_from_the_text_alone(project: Project) -> None:
    project.set(encode__formats=["megatron", "parquet"], encode__splits=SPLITS)
    build(project)
    before = {row["id"]: row["split"] for row in index(project)}
    texts = {f"{name}-{i}": text for name, some in DOCUMENTS.items() for i, text in enumerate(some)}
    assert set(before.values()) == set(SPLITS)
    by_text: dict[str, set[str]] = {}
    for id, split in before.items():
        by_text.setdefault(texts[id], set()).add(split)
    assert all(len(splits) == 1 for splits in by_text.values())
    done = cli(project, "locate", "--id", "b.jsonl-3")
    assert done.returncode == 0 and "b.jsonl" in done.stdout, done.stderr
    of_id = dict(documents(project))
    for split in SPLITS:
        expected = [of_id[row["id"]] for row in index(project) if row["split"] == split]
        assert ids(project, "megatron", split) == ids(project, "parquet", split) == expected
    project.write("d.jsonl", [f"a new document {n}" for n in range(9)])
    build(project)
    after = {row["id"]: row["split"] for row in index(project)}
    assert {id: after[id] for id in before} == before


@pytest.mark.slow
def test_a_group_decides_the_split_of_its_documents(project: Project) -> None:
    for path in (project.root / "data/raw").rglob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for i, line in enumerate(lines):
            line["repo"] = i % 9 if i % 2 else f"repo {i % 5}"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    project.set(encode__formats=["arrow"], encode__splits=SPLITS, encode__split_group="repo")
    build(project)
    groups: dict[int, set[str]] = {}
    for row in index(project):
        groups.setdefault(row["group"], set()).add(row["split"])
    assert len(groups) > 9 and all(len(splits) == 1 for splits in groups.values())
    assert Counter(map(len, groups.values())).keys() == {1}
    for arguments in ([], ["--no-source"]):
        done = cli(project, "verify", *arguments)
        assert done.returncode == 0, done.stdout
    project.set(encode__split_group="nothing")
    done = cli(project, "build")
    assert done.returncode == 2 and "encode.split_group" in done.stderr


@pytest.mark.slow
def test_a_shuffled_set_is_in_the_order_of_its_key_whatever_the_workers_and_files(project: Project) -> None:
    project.set(encode__formats=["megatron"], encode__shuffle={"seed": 5, "epochs": 2}, encode__splits=SPLITS)
    build(project)
    manifest = read_manifest(project.root / "data/tokens")
    of_id = dict(documents(project))
    for split in SPLITS:
        in_order = [of_id[row["id"]] for row in index(project) if row["split"] == split]
        orders = []
        for epoch in (0, 1):
            order = Order(len(in_order), order_key(manifest.tokens_digest(), 5, epoch, split))
            expected = [in_order[i] for i in order.item_at(np.arange(len(in_order)))]
            assert ids(project, "megatron", split, epoch) == expected
            orders.append(expected)
        assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    with pytest.raises(ParamsError, match=r"tokenmill.open\(…, epoch=1\)"):
        tokenmill.open(project.root / "data/tokens", split="train").shard(0, 1).set_epoch(1)
    before = project.outputs()
    shutil.rmtree(project.root / ".tokenmill/units")
    project.set(run__workers=1, run__engine="threads")
    assert project.run("tokenmill", "build", "--force").returncode == 0
    assert project.outputs() == before


@pytest.mark.slow
def test_packed_rows_hold_every_token_once_and_say_where_documents_begin(project: Project) -> None:
    project.set(encode__formats=["arrow"], encode__pack={"length": 24, "mode": "best_fit"})
    build(project)
    expected = Counter(token for _, tokens in documents(project) for token in tokens)
    one = next(one for one in read_manifest(project.root / "data/tokens").sets if one.format == "arrow")
    rows = [row for part in items(project, one) for row in part]
    assert Counter(token for row in rows for token in row["input_ids"]) == expected
    assert max(len(row["input_ids"]) for row in rows) <= 24
    whole = {tuple(tokens) for _, tokens in documents(project) if len(tokens) <= 24}
    pieces = set()
    for row in rows:
        assert row["starts"][0] == 0
        for start, stop in zip(row["starts"], [*row["starts"][1:], len(row["input_ids"])], strict=True):
            pieces.add(tuple(row["input_ids"][start:stop]))
    assert whole <= pieces
    packed = read_manifest(project.root / "data/tokens").packed[""]
    assert packed["n_sequences"] == len(rows)
    assert packed["n_padding"] == sum(24 - len(row["input_ids"]) for row in rows)


@pytest.mark.slow
def test_an_index_names_the_tokens_of_the_same_sequences_as_rows_have(project: Project) -> None:
    pack = {"length": 16, "mode": "best_fit"}
    project.set(encode__formats=["arrow"], encode__pack=pack, encode__shuffle={"seed": 3})
    build(project)
    rows = ids(project, "arrow")
    project.set(encode__formats=["megatron"], encode__pack={**pack, "output": "index"})
    build(project)
    parts = items(
        project, next(one for one in read_manifest(project.root / "data/tokens").sets if one.format == "megatron")
    )
    found: dict[int, list[int]] = {}
    table = pq.read_table(project.root / "data/tokens/index/part-00000.parquet", partitioning=None)
    for row in table.to_pylist():
        tokens = parts[row["part"]][row["row"]]["input_ids"][row["start"] : row["start"] + row["n_tokens"]]
        found.setdefault(row["sequence"], []).extend(tokens)
    assert list(found.values()) == rows


@pytest.mark.slow
def test_sequences_are_filled_up_and_have_labels_on_request(project: Project) -> None:
    pack = {"length": 20, "mode": "concat", "pad": "<|endoftext|>", "labels": True}
    project.set(encode__formats=["arrow", "megatron", "litdata"], encode__pack=pack)
    words = "encode: megatron, litdata: these files have no place for the labels of encode.pack.labels, and get none\n"
    assert words in build(project).stderr
    tokens = project.root / "data/tokens"
    labelled, other = (
        tokenmill.open(tokens, format=name) for name in ("arrow", "megatron")
    )  # the reader computes them
    assert all(labelled.labels(i).tolist() == other.labels(i).tolist() for i in range(len(labelled)))
    one = read_manifest(tokens).sets[0]
    rows = [row for part in items(project, one) for row in part]
    text = [token for _, tokens in documents(project) for token in tokens]
    n = 0
    for row in rows:
        assert len(row["input_ids"]) == len(row["labels"]) == 20
        own = row["input_ids"][: max(20 - max(n + 20 - len(text), 0), 0)]
        assert own == text[n : n + 20]
        for i, label in enumerate(row["labels"]):
            is_masked = i >= len(own) or i in row["starts"][1:]
            assert label == (-100 if is_masked else row["input_ids"][i])
            assert row["position_ids"][i] == i - max(start for start in row["starts"] if start <= i)
        assert sum(row["seq_lengths"]) == 20 and len(row["seq_lengths"]) == len(row["starts"])
        n += 20
    assert n >= len(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pack", "shuffle"),
    [
        ({"mode": "best_fit", "pad": "<|pad|>"}, {"seed": 3}),
        ({"mode": "best_fit", "pad": "<|pad|>", "long": "drop"}, None),
        ({"mode": "none", "pad": "<|pad|>"}, None),
        ({"mode": "concat"}, None),
    ],
)
def test_windows_over_a_whole_file_are_its_sequences_and_a_scan_finds_their_documents(
    project: Project, pack: dict[str, Any], shuffle: dict[str, int] | None
) -> None:
    project.set(train_vocab__special_tokens=["<|endoftext|>", "<|pad|>"], run__workers=1)
    project.set(encode__formats=["arrow", "megatron", "datatrove", "olmo", "nanogpt"])
    project.set(encode__pack={"length": 24, **pack}, encode__shuffle=shuffle)
    build(project)
    one = next(one for one in read_manifest(project.root / "data/tokens").sets if one.format == "arrow")
    (part,) = items(project, one)
    rows = [row for row in part if len(row["input_ids"]) == 24]
    assert len(rows) > 10 and len(part) - len(rows) <= (pack["mode"] == "concat")
    names = ["megatron/part-00000.bin", "datatrove/part-00000.ds", "olmo/part-00000.npy", "nanogpt/train.bin"]
    for name in names:
        found = np.fromfile(project.root / "data/tokens" / name, np.uint16)
        windows = found[: len(found) // 24 * 24].reshape(-1, 24)
        assert windows.tolist() == [row["input_ids"] for row in rows], name
    end, pad = 0, 1
    for window, row in zip(windows, rows, strict=True):  # as OLMo-core looks for documents in a window
        scanned = [0, *(i + 1 for i in np.flatnonzero(window[:-1] == end).tolist())]
        n_ids = int(np.flatnonzero(window != pad)[-1]) + 1
        assert [start for start in scanned if start < n_ids] == row["starts"]


@pytest.mark.slow
def test_a_changed_shard_leaves_other_parts_of_a_set_as_they_are(project: Project) -> None:
    for n in range(12):
        project.write(f"more/{n:02}.jsonl", [f"document {i} of {n} {'word ' * 400}" for i in range(60)])
    project.set(encode__formats=["megatron"], encode__file_bytes=1 << 16)
    build(project)
    for stage in ("count", "train-vocab"):
        assert project.run("dvc", "freeze", stage).returncode == 0
    (one,) = read_manifest(project.root / "data/tokens").sets
    before = {file.name: file.sha256 for file in one.files}
    assert len(one.parts) > 8
    project.write("more/05.jsonl", [f"another document {i} {'word ' * 400}" for i in range(60)])
    build(project)
    (one,) = read_manifest(project.root / "data/tokens").sets
    changed = [file.name for file in one.files if before.get(file.name) != file.sha256]
    assert len({Path(name).stem for name in changed}) == 1, changed


@pytest.mark.slow
def test_a_format_that_cannot_hold_the_documents_is_refused_before_anything_is_encoded(project: Project) -> None:
    project.set(encode__formats=["mds"], encode__end_of_document=None)
    done = cli(project, "build")
    assert done.returncode == 2 and "encode.formats: mds: " in done.stderr
    project.set(encode__formats=["megatron"], encode__pack={"length": 16, "mode": "concat", "labels": True})
    done = cli(project, "build")
    assert done.returncode == 2 and "encode.formats: megatron: " in done.stderr

    project.set(encode__formats=["nanogpt"], encode__pack={"length": 16, "mode": "best_fit", "output": "index"})
    done = cli(project, "build")
    assert done.returncode == 2 and "encode.formats: nanogpt: " in done.stderr


@pytest.mark.slow
def test_folders_of_documents_may_be_called_like_formats(project: Project) -> None:
    for name in ("megatron", "parquet", "index", "documents"):
        project.write(f"{name}/x.jsonl", [f"{name} a", "b"])
    pack = {"length": 16, "mode": "concat", "output": "index"}
    project.set(encode__formats=["megatron", "parquet"], encode__pack=pack)
    build(project)
    assert ids(project, "megatron") == ids(project, "parquet") == [tokens for _, tokens in documents(project)]
    assert len(documents(project)) == sum(map(len, DOCUMENTS.values())) + 8
    assert cli(project, "verify").returncode == 0
