"""encode.min_parts: a set has at least that many files, and every item as before, in the same order."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

import tokenmill_reader
from tests.builders.built_sets import items
from tests.builders.teams import build, cli
from tests.conftest import Project, make_project
from tokenmill.dataset.manifest import read_manifest
from tokenmill.file_sets.cuts import cut
from tokenmill.file_sets.shuffle import buckets_of

DOCUMENTS = {
    "a.jsonl": [f"the {n} cat sat on mat {n * n}" for n in range(40)],
    "b.jsonl": [f"dogs é {n} and œufs {'x ' * n}" for n in range(30)],
}


def test_parts_are_cut_into_files_of_equal_size_that_are_as_many_as_asked_for() -> None:
    random = Random(1)
    for _ in range(2_000):
        n_items = [random.choice([0, 1, 2, 5, 5, 40]) for _ in range(random.randint(1, 4))]
        n_files_min = random.randint(1, 50)
        files = cut(n_items, n_files_min)
        for n, some in zip(n_items, files, strict=True):
            assert [i for one in some for i in one] == list(range(n))
            assert max(map(len, some)) - min(map(len, some)) <= 1
        n_files = sum(1 for some in files for one in some if one)
        assert n_files >= min(n_files_min, sum(n_items))
        assert n_files < max(min(n_files_min, sum(n_items)), len(n_items)) + len(n_items)
        by_size = dict(zip(n_items, files, strict=True))
        assert [by_size[n] for n in n_items] == files  # equal parts have equal files
        assert cut(n_items, None) == [[range(n)] for n in n_items]


def test_shuffled_items_fill_as_many_files_as_asked_for() -> None:
    random = Random(2)
    for _ in range(2_000):
        n_items, item_bytes = random.choice([0, 1, 3, 9, 100, 100_003]), random.choice([1, 1 << 10, 1 << 20, 64 << 20])
        n_files_min, file_bytes = random.randint(1, 60), random.choice([1 << 20, 64 << 20])
        before = buckets_of(n_items, n_items * item_bytes, file_bytes)
        buckets = buckets_of(n_items, n_items * item_bytes, file_bytes, n_files_min)
        assert buckets.n_files >= min(n_files_min, n_items)
        assert buckets.per_file % buckets.per_bucket == 0
        assert buckets == before or before.n_files < n_files_min


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with two units, in one part of each set."""
    return make_project(tmp_path_factory.mktemp("parts") / "project", DOCUMENTS)


def sets_of(project: Project) -> dict[str, list[Any]]:
    """The items of the parts of each set, by its folder."""
    sets = read_manifest(project.root / "data/tokens").sets
    return {str(Path(one.parts[0].files[0].name).parent): items(project, one) for one in sets if one.parts}


def shown(parts: list[Any]) -> str:
    return json.dumps([row for part in parts for row in part], default=str)


PACK = {"length": 24, "mode": "best_fit"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arranged",
    [
        {},
        {"splits": {"train": 0.7, "test": 0.3}},
        {"shuffle": {"seed": 4, "epochs": 2}},
        {"pack": PACK},
        {"pack": {**PACK, "long": "drop", "pad": "<|endoftext|>", "labels": True}},
        {"pack": {**PACK, "mode": "concat"}, "shuffle": {"seed": 3}},
    ],
    ids=["documents", "splits", "shuffled", "packed", "labels", "packed and shuffled"],
)
def test_a_set_has_as_many_files_as_asked_for_and_the_same_items(project: Project, arranged: dict[str, Any]) -> None:
    has_labels = arranged.get("pack", {}).get("labels")
    formats = ["parquet", "arrow", *([] if has_labels or "pack" in arranged else ["megatron", "datatrove", "nanogpt"])]
    project.set(encode__formats=formats, encode__splits={}, encode__shuffle=None, encode__pack=None)
    project.set(encode__min_parts=None, **{f"encode__{key}": value for key, value in arranged.items()})
    build(project)
    before, tokens = sets_of(project), project.root / "data/tokens"
    split = next(iter(arranged.get("splits", [])), None)
    state = tokenmill_reader.open(tokens, split, format="arrow").state()
    assert "min_parts" not in (tokens / "manifest.json").read_text()
    project.set(encode__min_parts=7)
    build(project)
    after = sets_of(project)
    assert tokenmill_reader.open(tokens, split, format="arrow").state() == state
    assert after.keys() - before.keys() == ({"parquet"} if not arranged else set())
    for folder, parts in before.items():
        assert len(parts) == 1 and shown(after[folder]) == shown(parts), folder
    for folder, parts in after.items():
        sizes = list(map(len, parts))
        assert len(sizes) == (1 if folder == "nanogpt" else 7), folder
        assert max(sizes[:-1], default=0) - min(sizes) <= (6 if "shuffle" in arranged else 1)
    done = cli(project, "verify", "--no-source")
    assert done.returncode == 0, done.stdout
    n_files = len(read_manifest(project.root / "data/tokens").set_files())
    assert f"  {n_files} files of file sets were compared with the documents of the dataset\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [None, {"seed": 3, "epochs": 2}], ids=["in order", "shuffled"])
def test_an_index_names_the_files_that_documents_are_in(project: Project, shuffle: dict[str, int] | None) -> None:
    project.set(encode__formats=["arrow"], encode__splits={}, encode__shuffle=shuffle, encode__min_parts=None)
    project.set(encode__pack={**PACK, "output": "index"})
    build(project)
    tokens = project.root / "data/tokens"
    expected = [ids.tolist() for ids in tokenmill_reader.open(tokens).packed()]
    project.set(encode__min_parts=5)
    build(project)
    assert [ids.tolist() for ids in tokenmill_reader.open(tokens).packed()] == expected
    folder = tokens / "index" if shuffle is None else tokens / "index/epoch-1"
    tables = [pq.read_table(path, partitioning=None) for path in sorted(folder.iterdir())]
    assert len(tables) == 5 and {part for one in tables for part in one["part"].to_pylist()} == set(range(5))
    assert cli(project, "verify", "--no-source").returncode == 0
