"""A build redoes what changed and nothing else, and ends with the bytes of a build from nothing."""

import gzip
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.builders.builds import units_done
from tests.builders.teams import build
from tests.conftest import Project

N_CHANGES = int(os.environ.get("TOKENMILL_TEST_CHANGES", "2"))
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "naïve", "東京", "🙂", "<|endoftext|>", "  ", "1234"]


def with_fixed_tokenizer(project: Project) -> None:
    for stage in ("count", "train-vocab"):
        project.dvc("freeze", stage)


@pytest.mark.slow
def test_a_changed_a_new_and_a_renamed_shard_are_all_that_is_done_again(project: Project) -> None:
    for name in "cdef":
        project.write(f"{name}.jsonl", [f"shard {name}"] * 3)
    build(project)
    with_fixed_tokenizer(project)
    project.write("c.jsonl", ["another text"])
    done = build(project)
    assert units_done(done.stderr, "encode") == units_done(done.stderr, "validate") == "1 of 6"
    (project.root / "data/raw/deep").mkdir()
    (project.root / "data/raw/d.jsonl").rename(project.root / "data/raw/deep/d.jsonl")
    done = build(project)
    assert units_done(done.stderr, "encode") == units_done(done.stderr, "validate") == "0 of 6"
    project.write("g.jsonl", ["new"])
    (project.root / "data/raw/e.jsonl").unlink()
    (project.root / "data/raw/f.jsonl").touch()
    assert units_done(build(project).stderr, "encode") == "1 of 6"
    names = {
        path.relative_to(project.root / "data/tokens/documents").as_posix()
        for path in (project.root / "data/tokens").rglob("*.parquet")
    }
    assert names == {f"{name}.jsonl.parquet" for name in ("a", "b", "c", "deep/d", "f", "g")}


@pytest.mark.slow
def test_with_positions_as_ids_a_part_that_moves_is_made_again(project: Project) -> None:
    project.set(source__id_column=None, source__unit_bytes_max=2000)
    texts = [f"document {i}" for i in range(300)]
    project.write("long.jsonl", texts)
    build(project)
    with_fixed_tokenizer(project)
    project.write("long.jsonl", ["one more at the start", *texts])
    build(project)
    rows = json.loads((project.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))["shards"]
    parts = [row for shard in rows for row in shard["rows"] if row["name"].endswith("long.jsonl")]
    assert len(parts) > 4
    assert [part["first_row"] for part in parts] == [
        sum(p["n_documents"] for p in parts[:i]) for i in range(len(parts))
    ]


@pytest.mark.slow
def test_a_part_that_moves_keeps_its_tokens_and_its_documents_have_their_new_rows(project: Project) -> None:
    """In the document index, in the files of OLMo, and in what verify finds."""
    project.set(source__unit_bytes_max=2000, encode__formats=["olmo"], encode__splits={"train": 0.5, "test": 0.5})
    lines = [json.dumps({"id": f"long-{i}", "text": f"document {i}"}) for i in range(300)]
    path = project.root / "data/raw/long.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    build(project)
    with_fixed_tokenizer(project)
    build(project)
    path.write_text("\n".join([json.dumps({"id": "first", "text": "one more at the start"}), *lines]), encoding="utf-8")
    done = build(project)
    for stage in ("encode", "validate"):
        n_todo, n_units = units_done(done.stderr, stage).split(" of ")
        assert int(n_todo) <= 2 < int(n_units) - 4
    expected = [("first", 0), *((f"long-{i}", i + 1) for i in range(300))]
    assert rows_of(project) == expected
    places = [
        line.split(",")
        for path in (project.root / "data/tokens/olmo").rglob("*.csv.gz")
        for line in gzip.decompress(path.read_bytes()).decode().splitlines()
    ]
    assert sorted((id, int(row) - 1) for _, _, id, shard, row in places if shard == "data/raw/long.jsonl") == sorted(
        expected
    )
    assert project.cli("verify").returncode == 0


def test_parts_of_equal_lines_are_one_unit_and_have_rows_of_their_own(project: Project) -> None:
    project.set(source__unit_bytes_max=2000)
    lines = [json.dumps({"id": f"long-{i}", "text": f"document {i}"}) for i in range(300)] * 3
    (project.root / "data/raw/long.jsonl").write_text("\n".join(lines), encoding="utf-8")
    build(project)
    units = json.loads((project.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))["shards"]
    assert len({shard["unit"] for shard in units}) < len(units)
    expected = [(f"long-{i % 300}", i) for i in range(900)]
    assert rows_of(project) == expected
    done = project.cli("verify")
    assert done.returncode == 0, done.stdout


def rows_of(project: Project) -> list[tuple[str, int]]:
    """Ids and rows of the documents of long.jsonl in the document index."""
    index = pq.read_table(project.root / "data/tables/documents.parquet", columns=["id", "shard", "row"]).to_pylist()
    return [(one["id"], one["row"]) for one in index if one["shard"] == "data/raw/long.jsonl"]


def test_equal_shards_are_one_unit(project: Project) -> None:
    shutil.copy(project.root / "data/raw/a.jsonl", project.root / "data/raw/copy.jsonl")
    build(project)
    tokens = project.root / "data/tokens/documents"
    assert (tokens / "a.jsonl.parquet").read_bytes() == (tokens / "copy.jsonl.parquet").read_bytes()
    units = list((project.root / ".tokenmill/units").glob("*/*/tokens.parquet"))
    assert len(units) == 2


@pytest.mark.slow
def test_another_tokenizer_encodes_everything_and_the_old_one_comes_back_without_work(project: Project) -> None:
    build(project)
    project.set(train_vocab__vocab_size=270)
    assert units_done(build(project).stderr, "encode") == "all"
    shutil.rmtree(project.root / ".dvc/cache/runs")  # DVC would bring the stage back whole
    project.set(train_vocab__vocab_size=272)
    assert units_done(build(project).stderr, "encode") == "0 of 2"


def test_an_output_shares_its_bytes_with_the_store_and_the_cache_and_is_read_only(project: Project) -> None:
    build(project)
    output = (project.root / "data/tokens/documents/a.jsonl.parquet").stat()
    assert output.st_mode & 0o222 == 0
    [unit] = [
        path.stat()
        for path in (project.root / ".tokenmill/units").rglob("tokens.parquet")
        if path.stat().st_ino == output.st_ino
    ]
    assert unit.st_nlink == 3


def test_with_a_cache_of_copies_nobody_shares_a_writable_file(project: Project) -> None:
    project.dvc("config", "cache.type", "copy")
    build(project)
    project.dvc("unprotect", "data/tokens")
    for path in (project.root / "data/tokens/documents").glob("*"):
        path.write_bytes(b"written in place")
    for path in (*(project.root / ".tokenmill/units").rglob("*"), *(project.root / ".dvc/cache").rglob("*")):
        assert path.is_dir() or path.read_bytes() != b"written in place"


def test_a_unit_damaged_in_the_store_is_made_again(project: Project) -> None:
    build(project)
    before = project.outputs()
    for path in (project.root / ".tokenmill/units").rglob("tokens.parquet"):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content[:-1] + b"X")
    shutil.rmtree(project.root / "data/tokens")
    shutil.rmtree(project.root / ".dvc/cache")
    assert units_done(build(project).stderr, "encode") == "all"
    assert project.outputs() == before


def test_the_store_is_held_under_its_limit(project: Project) -> None:
    project.set(run__store_gb_max=0)
    build(project)
    kept = list((project.root / ".tokenmill/units").rglob("*.parquet"))
    assert all(path.stat().st_nlink > 1 for path in kept)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_changes_end_with_the_bytes_of_a_full_build(new_project: Callable[[str], Project], seed: int) -> None:
    randoms = random.Random(seed)
    project = new_project("incremental")
    knobs = {"source__unit_bytes_max": 4000, "source__unit_bytes_min": 300, "run__workers": 2}
    if seed % 2:
        knobs |= {"source__id_column": None}
    project.set(**knobs)
    raw = project.root / "data/raw"
    for i in range(12):
        project.write(f"{i:02}.jsonl", documents(randoms))
    build(project)
    for step in range(N_CHANGES):
        for _ in range(randoms.randrange(1, 4)):
            change(project, raw, randoms)
        project.set(run__workers=randoms.randrange(1, 4))
        build(project)
        full = new_project(f"full-{step}")
        shutil.rmtree(full.root / "data/raw")
        shutil.copytree(raw, full.root / "data/raw")
        full.set(**knobs)
        build(full)
        assert project.outputs() == full.outputs()
        assert (project.root / "dvc.lock").read_bytes() == (full.root / "dvc.lock").read_bytes()
        shutil.rmtree(full.root)


def documents(randoms: random.Random) -> list[str]:
    n = randoms.choice([0, 1, 3, 10, 120])
    return [" ".join(randoms.choices(WORDS, k=randoms.randrange(30))) for _ in range(n)]


def change(project: Project, raw: Path, randoms: random.Random) -> None:
    shards = sorted(raw.rglob("*.jsonl"))
    shard = randoms.choice(shards)
    match randoms.choice(["new", "changed", "line", "deleted", "renamed", "touched", "swapped"]):
        case "new":
            project.write(f"{randoms.randrange(10**6)}.jsonl", documents(randoms))
        case "changed":
            project.write(shard.relative_to(raw).as_posix(), documents(randoms))
        case "line":
            lines = shard.read_bytes().splitlines(keepends=True)
            lines.insert(randoms.randrange(len(lines) + 1), b'{"id": 7, "text": "a new line"}\n')
            shard.write_bytes(b"".join(lines))
        case "deleted" if len(shards) > 5:
            shard.unlink()
        case "renamed":
            (raw / "deep").mkdir(exist_ok=True)
            shard.rename(raw / "deep" / f"{randoms.randrange(10**6)}.jsonl")
        case "touched":
            then = time.time() - randoms.randrange(10**6)
            os.utime(shard, (then, then))
        case "swapped":
            other = randoms.choice(shards)
            one, two = shard.read_bytes(), other.read_bytes()
            shard.write_bytes(two)
            other.write_bytes(one)
