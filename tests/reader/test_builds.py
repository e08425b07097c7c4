"""`tokenmill.open` reads what builds make: the same items in every format, and in the order that a build itself would write."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tokenmill
from tests.builders.teams import build
from tests.conftest import Project, make_project
from tokenmill.corpus.text_digests import text_keys
from tokenmill.dataset.manifest import read_manifest
from tokenmill.dataset.splits import split_of
from tokenmill_reader.dataset_files import READ_FORMATS
from tokenmill_reader.token_dataset import TokenDataset

pytestmark = pytest.mark.slow

TEXTS = {
    "a.jsonl": [f"the {n} cat sat on mat {n * n}" for n in range(40)],
    "b.jsonl": [f"dogs é {n} and œufs {'x ' * n}" for n in range(30)],
    "de/c.jsonl": [f"die Katze {n} saß auf der Matte" for n in range(20)],
}
SPLITS = {"train": 0.7, "validation": 0.3}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that is built with the documents' own files alone."""
    project = make_project(tmp_path_factory.mktemp("reader") / "project", TEXTS)
    build(project)
    return project


@pytest.fixture
def project(built: Project, tmp_path: Path) -> Project:
    """A copy of it, to change."""
    shutil.copytree(built.root, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")


def tokens(project: Project, **arguments: Any) -> TokenDataset:
    return tokenmill.open(project.root / "data/tokens", **arguments)


def lists(dataset: TokenDataset) -> list[list[int]]:
    return [one.tolist() for one in dataset]


def documents(project: Project, split: str | None = None) -> list[list[int]]:
    """The ids of all documents, or those of a split, in the order of the dataset."""
    folder = project.root / "data/tokens"
    shards = read_manifest(folder).shards
    found = [row for one in shards for row in pq.read_table(folder / one.name)["input_ids"].to_pylist()]
    sha256 = pq.read_table(project.root / "data/tables/documents.parquet")["sha256"].combine_chunks()
    splits = split_of(text_keys(sha256), SPLITS)
    return [ids for ids, one in zip(found, splits, strict=True) if split in (None, list(SPLITS)[one])]


def test_a_build_without_further_formats_is_read(built: Project) -> None:
    dataset = tokens(built)
    assert dataset.format == "parquet"
    assert lists(dataset) == documents(built)
    everything = np.concatenate(list(dataset))
    assert np.array_equal(np.concatenate(list(dataset.sequences(64))), everything[: len(everything) // 64 * 64])


def test_the_path_of_a_column_counts_that_is_in_the_schema_and_not_that_in_a_row_group(project: Project) -> None:
    before = lists(tokens(project))
    for path in (project.root / "data/tokens/documents").rglob("*.parquet"):
        front, _, behind = path.read_bytes().rpartition(b"input_ids")
        path.chmod(0o644)
        path.write_bytes(front + b"inp\xfft_ids" + behind)
        with pytest.raises(UnicodeDecodeError):
            _ = pq.read_metadata(path).row_group(0).column(1).path_in_schema
    assert lists(tokens(project)) == before


def test_each_format_of_each_split_has_the_same_documents_and_state(project: Project) -> None:
    project.set(encode__formats=list(READ_FORMATS), encode__splits=SPLITS)
    build(project)
    for split in SPLITS:
        expected = documents(project, split)
        assert 0 < len(expected) < 90
        for format in READ_FORMATS:
            assert lists(tokens(project, split=split, format=format)) == expected, (split, format)
        assert len({str(tokens(project, split=split, format=format).state()) for format in READ_FORMATS}) == 1


def test_shuffled_documents_have_the_order_of_a_build_that_shuffles(project: Project) -> None:
    project.set(encode__formats=["arrow"], encode__splits=SPLITS)
    build(project)
    expected = [lists(tokens(project, split="train").shuffle(5, epoch)) for epoch in range(2)]
    project.set(encode__formats=["arrow", "nanogpt"], encode__shuffle={"seed": 5, "epochs": 2})
    build(project)
    for format in ("arrow", "nanogpt"):
        found = [lists(tokens(project, split="train", format=format, epoch=epoch)) for epoch in range(2)]
        assert found == expected
    assert found[0] != found[1]


@pytest.mark.parametrize("shuffle", [None, {"seed": 3, "epochs": 2}])
def test_an_index_gives_the_sequences_that_a_build_writes_as_rows(project: Project, shuffle: Any) -> None:
    epochs = range(2 if shuffle else 1)
    pack = {"length": 24, "mode": "best_fit"}
    project.set(encode__formats=["arrow", "parquet"], encode__pack=pack, encode__shuffle=shuffle)
    build(project)
    rows = [tokens(project, epoch=epoch) for epoch in epochs]
    expected = [[(one.tolist(), dataset.starts(i).tolist()) for i, one in enumerate(dataset)] for dataset in rows]
    assert any(len(starts) > 1 for _, starts in expected[0])
    dataset = tokens(project, format="parquet")
    assert [(dataset[i].tolist(), dataset.starts(i).tolist()) for i in range(len(dataset))] == expected[0]
    formats = ["arrow", "megatron", "olmo", "parquet"]
    project.set(encode__formats=formats, encode__pack=pack | {"output": "index"})
    build(project)
    for epoch in epochs:
        for format in formats:
            packed = tokens(project, format=format, epoch=epoch).packed()
            found = [(packed[i].tolist(), packed.starts(i).tolist()) for i in range(len(packed))]
            assert found == expected[epoch], format
        assert lists(tokens(project, epoch=epoch)) == documents(project)


def test_labels_are_those_that_a_build_writes(project: Project) -> None:
    project.set(encode__pack={"length": 24, "mode": "best_fit", "pad": "<|endoftext|>", "labels": True})
    project.set(encode__formats=["arrow", "parquet"])
    build(project)
    written = [tokens(project, format=format) for format in ("arrow", "parquet")]
    expected = [written[0].labels(i).tolist() for i in range(len(written[0]))]
    assert expected == [written[1].labels(i).tolist() for i in range(len(written[1]))]
    assert any(-100 in one for one in expected)
    project.set(encode__pack={"length": 24, "mode": "best_fit", "pad": "<|endoftext|>"})
    project.set(encode__formats=["megatron"])
    build(project)
    computed = tokens(project)
    assert [computed.labels(i).tolist() for i in range(len(computed))] == expected
