"""The count stage in a real build: weights, rare pre-tokens and leftovers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.builds import units_done
from tests.builders.teams import build, cli
from tests.conftest import DOCUMENTS, REPOSITORY, Project
from tests.times import PATIENCE_S
from tokenmill import Counter
from tokenmill.config.load_params import load_params
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.provenance import Samples, read_provenance
from tokenmill.corpus.source_shards import find_documents
from tokenmill.counts.table import merge, read_counts


def report(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.root / "data/counts/report.json").read_text(encoding="utf-8"))
    return found


def counted(project: Project) -> dict[bytes, int]:
    return dict(zip(*read_counts(project.root / "data/counts/counts.parquet").to_pydict().values(), strict=True))


def exact(*shards: str) -> Any:
    counter = Counter("gpt2")
    for shard in shards:
        counter.update(DOCUMENTS[shard])
    return counter.finish()


def test_the_report_says_what_was_counted(project: Project) -> None:
    build(project, "--only", "count")
    found, counts = report(project), counted(project)
    texts = [text for documents in DOCUMENTS.values() for text in documents]
    assert found["documents"] == 6
    assert found["text_bytes"] == found["text_bytes_counted"] == sum(len(text.encode()) for text in texts)
    assert found["pretokens"] == sum(counts.values())
    assert found["pretokens_distinct"] == len(counts)
    assert found["dropped"]["pretokens_distinct"] == 0


@pytest.mark.parametrize("unit_bytes_max", [100_000, 80])
def test_the_samples_are_the_same_whether_they_are_taken_while_counting_or_read(
    project: Project, unit_bytes_max: int
) -> None:
    project.set(source__unit_bytes_min=0, source__unit_bytes_max=unit_bytes_max)
    build(project, "--only", "count")
    provenance = read_provenance(project.root / "data/counts/provenance.json")
    params = load_params(project.root / "params.yaml")
    shards = find_documents(project.root, params)
    assert provenance.samples == Samples(shards).texts(params.source, UNBOUNDED, None)
    assert len(provenance.samples) == len(provenance.shards) == len(shards) == 2


def test_weights_multiply_the_counts_of_the_shards_they_match(project: Project) -> None:
    project.set(count__weights={"data/raw/a*": "3/2", "data/raw/b.*": 3})
    build(project, "--only", "count")
    a, b = (exact(shard) for shard in sorted(DOCUMENTS))
    assert counted(project) == dict(zip(*merge([a, b], ["3/2", 3]).to_pydict().values(), strict=True))
    assert report(project)["weights"] == {"data/raw/a*": "3/2", "data/raw/b.*": "3"}


@pytest.mark.parametrize("at_once_max", [64, 2])
def test_counts_of_many_units_are_added_up_in_groups_and_one_change_leaves_most_of_them(
    project: Project, monkeypatch: pytest.MonkeyPatch, at_once_max: int
) -> None:
    monkeypatch.setattr("tokenmill.stages.count_sums._SUMMED_AT_ONCE_MAX", at_once_max)
    for shard in DOCUMENTS:
        (project.root / "data/raw" / shard).unlink()
    texts = {f"{i:03}.jsonl": [f"the {i}th cat and {i % 7} of the others"] * (1 + i % 3) for i in range(120)}
    for shard, documents in texts.items():
        project.write(shard, documents)
    project.set(source__unit_bytes_min=0, count__weights={"data/raw/1*": "3/2"})

    def expected() -> dict[bytes, int]:
        one, other = Counter("gpt2"), Counter("gpt2")
        for shard, documents in texts.items():
            (other if shard.startswith("1") else one).update(documents)
        return dict(zip(*merge([one.finish(), other.finish()], [1, "3/2"]).to_pydict().values(), strict=True))

    assert cli(project, "build", "--only", "count").returncode == 0
    assert counted(project) == expected()
    texts["040.jsonl"] = ["a new text of a new cat"]
    project.write("040.jsonl", texts["040.jsonl"])
    done = cli(project, "build", "--only", "count")
    assert counted(project) == expected()
    assert units_done(done.stderr, "count") == "1 of 120"
    levels = [line for line in done.stderr.splitlines() if line.startswith("count-sum: ")]
    assert len(levels) == (1 if at_once_max == 64 else 2)
    for line in levels:
        n_again, n_groups = map(int, line.removeprefix("count-sum: ").split(" units")[0].split(" of "))
        assert n_again <= 2 < n_groups


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"data/raw/*": 2, "data/raw/a*": 3}, "allowed: one glob for a shard"),
        ({"data/raw/none*": 2}, "count.weights: expected files that match 'data/raw/none*'"),
        ({"data/raw/*": 1.5}, "count.weights"),
        ({"data/raw/*": "-1"}, "allowed: a whole number"),
    ],
)
def test_wrong_weights_are_refused_with_what_is_allowed(
    project: Project, weights: dict[str, Any], message: str
) -> None:
    project.set(count__weights=weights)
    done = project.cli("build", "--only", "count")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_rare_pretokens_are_dropped_after_all_is_added_up_and_reported(project: Project) -> None:
    project.set(count__count_min=2)
    done = build(project, "--only", "count")
    rows = dict(zip(*exact(*DOCUMENTS).to_pydict().values(), strict=True))
    rare = {pretoken: n for pretoken, n in rows.items() if n < 2}
    assert counted(project) == {pretoken: n for pretoken, n in rows.items() if n >= 2}
    dropped, text_bytes = report(project)["dropped"], report(project)["text_bytes"]
    rare_bytes = sum(len(pretoken) * n for pretoken, n in rare.items())
    assert dropped == {
        "count_min": 2,
        "pretokens": sum(rare.values()),
        "pretokens_distinct": len(rare),
        "text_bytes": rare_bytes,
        "text_share": round(rare_bytes / text_bytes, 6),
    }
    assert f"{len(rare)} of {len(rows)} distinct pre-tokens" in done.stderr


@pytest.mark.slow
def test_little_memory_and_another_directory_change_no_byte(
    new_project: Callable[[str], Project], tmp_path: Path
) -> None:
    large, small = new_project("large"), new_project("small")
    words = [" ".join(map(str, range(i * 55_000, (i + 1) * 55_000))) for i in range(20)]  # one run of 1.1 million
    for project in (large, small):
        project.write("c.jsonl", words)
    small.set(run__memory_mb_max=416, run__spill_directory=str(tmp_path / "spill"))
    large.build("--only", "count")
    done = small.cli("build", "--only", "count")
    assert done.returncode == 2
    assert f"run.spill_directory: {tmp_path / 'spill'}: expected a folder; none is there." in done.stderr
    (tmp_path / "spill").mkdir()
    small.build("--only", "count")
    assert small.outputs() == large.outputs()
    assert not list((tmp_path / "spill").iterdir())


def partitioned(project: Project, n: int) -> dict[str, bytes]:
    """The outputs of a count with this number of partitions."""
    project.set(count__partitions=n)
    done = cli(project, "build", "--only", "count")
    assert done.returncode == 0, done.stderr
    return project.outputs()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"count__weights": {"data/raw/a*": "1/3", "data/raw/b.*": "5/2"}, "count__count_min": 2},
        {"count__pattern": None},
    ],
    ids=["plain", "weights and count_min", "no split"],
)
def test_partitions_change_no_byte(project: Project, changes: dict[str, Any]) -> None:
    project.set(source__unit_bytes_min=0, source__unit_bytes_max=80, **changes)
    whole = partitioned(project, 1)
    assert partitioned(project, 4) == whole


def test_another_number_of_partitions_counts_no_unit_again(project: Project) -> None:
    whole = partitioned(project, 3)
    project.set(count__partitions=67)
    done = cli(project, "build", "--only", "count")
    assert units_done(done.stderr, "count") == "0 of 2"
    assert project.outputs() == whole


@pytest.mark.slow
@pytest.mark.parametrize("at_once_max", [64, 2])
def test_partitions_of_many_units_equal_one_partition_and_follow_a_change(
    new_project: Callable[[str], Project], monkeypatch: pytest.MonkeyPatch, at_once_max: int
) -> None:
    monkeypatch.setattr("tokenmill.stages.count_sums._SUMMED_AT_ONCE_MAX", at_once_max)
    one, other = new_project("one"), new_project("other")
    for project in (one, other):
        project.set(
            source__unit_bytes_min=0, run__engine="inline", count__weights={"data/raw/1*": "3/2"}, count__count_min=3
        )
        for i in range(120):
            project.write(f"{i:03}.jsonl", [f"the {i}th cat and {i % 7} of the others"] * (1 + i % 3))
    assert partitioned(other, 4) == partitioned(one, 1)
    for project in (one, other):
        project.write("040.jsonl", ["a new text of a new cat"])
    assert partitioned(other, 4) == partitioned(one, 1)
    assert partitioned(other, 5) == partitioned(one, 1)


@pytest.mark.slow
def test_partitions_of_spilled_counts_change_no_byte(new_project: Callable[[str], Project]) -> None:
    large, small = new_project("large"), new_project("small")
    for project in (large, small):
        project.write("c.jsonl", [" ".join(map(str, range(i * 55_000, (i + 1) * 55_000))) for i in range(20)])
    small.set(run__memory_mb_max=416)
    assert partitioned(small, 70) == partitioned(large, 1)  # more than are open at once


@pytest.mark.slow
def test_what_a_killed_build_spilled_is_removed_by_the_next(project: Project) -> None:
    project.write("c.jsonl", [" ".join(map(str, range(i * 60_000, (i + 1) * 60_000))) for i in range(50)])
    project.set(run__memory_mb_max=416)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [str(Path(sys.executable).parent / "tokenmill"), "build", "--only", "count"]
    process = subprocess.Popen(command, cwd=project.root, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE_S
    while not list(project.root.glob(".tokenmill/count-*/*/*.arrow")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(project.root.glob(".tokenmill/count-*/*/*.arrow"))
    (project.root / "data/raw/c.jsonl").unlink()
    build(project, "--only", "count")
    assert not list((project.root / ".tokenmill").glob("count-*"))
