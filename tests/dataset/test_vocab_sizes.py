"""Datasets of a training ladder: one for each vocabulary size."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.builders.teams import build, cli
from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.dataset.manifest import read_manifest


@pytest.fixture
def ladder(project: Project) -> Project:
    project.set(train_vocab__vocab_size=272, train_vocab__vocab_sizes=[260, 266], encode__vocab_sizes=[260, 266])
    return project


def track(project: Project) -> None:
    with project.edited("dvc.yaml") as pipeline:
        pipeline["stages"]["encode"]["outs"].append("data/vocab_sizes")


def rows(tokens: Path) -> dict[str, list[int]]:
    manifest = read_manifest(tokens)
    tables = [pq.read_table(tokens / shard.name, partitioning=None).to_pylist() for shard in manifest.shards]
    return {row["id"]: row["input_ids"] for table in tables for row in table}


@pytest.mark.slow
def test_each_size_is_a_dataset_of_its_own_that_verify_finds_right(ladder: Project) -> None:
    done = cli(ladder, "build")
    assert done.returncode == 2 and "Add data/vocab_sizes to the outs of encode" in done.stderr
    track(ladder)
    ladder.set(encode__formats=["megatron"])
    build(ladder)
    root = ladder.root
    for size, folder in (
        (272, root / "data"),
        (260, root / "data/vocab_sizes/260"),
        (266, root / "data/vocab_sizes/266"),
    ):
        tokenizer = Tokenizer.load(folder / "tokenizer")
        assert tokenizer.vocab_size == size
        end = tokenizer.special_tokens["<|endoftext|>"]
        for id, ids in rows(folder / "tokens").items():
            assert ids == [*tokenizer.encode(tokenizer.decode(ids[:-1])), end], id
        assert (folder / "tokens/megatron/part-00000.bin").exists()
        done = cli(ladder, "verify", str(folder / "tokens"))
        assert done.returncode == 0, done.stdout
    lengths = [
        sum(map(len, rows(folder / "tokens").values())) for folder in (root / "data/vocab_sizes/260", root / "data")
    ]
    assert lengths[0] > lengths[1]


@pytest.mark.slow
def test_the_sizes_come_back_alone(ladder: Project) -> None:
    track(ladder)
    build(ladder)
    before = {path: path.read_bytes() for path in (ladder.root / "data/vocab_sizes").rglob("*") if path.is_file()}
    shutil.rmtree(ladder.root / "data/vocab_sizes")
    shutil.rmtree(ladder.root / ".tokenmill/units")
    build(ladder, "--force")
    assert {path: path.read_bytes() for path in before} == before
    ladder.set(encode__vocab_sizes=[266])
    build(ladder)
    assert [path.name for path in (ladder.root / "data/vocab_sizes").iterdir()] == ["266"]
    ladder.set(encode__vocab_sizes=[269])
    done = cli(ladder, "build")
    assert done.returncode == 2 and "encode.vocab_sizes: found 269" in done.stderr


@pytest.mark.slow
def test_two_sizes_that_are_the_same_vocabulary_are_two_datasets(ladder: Project) -> None:
    track(ladder)
    ladder.set(train_vocab__vocab_size=5000, train_vocab__vocab_sizes=[3000, 4000], encode__vocab_sizes=[3000, 4000])
    build(ladder)
    smaller, larger = (rows(ladder.root / f"data/vocab_sizes/{size}/tokens") for size in (3000, 4000))
    assert smaller == larger
