"""A unit that takes too long fails, and stops no other."""

import threading

import pyarrow as pa
import pytest

from tests.builders.teams import cli
from tests.conftest import Project
from tokenmill import Counter, _core
from tokenmill.errors import UnitTimeoutError


def test_a_deadline_ends_a_call_of_its_own_thread_alone() -> None:
    words = " ".join(f"w{i}" for i in range(200_000))
    many = pa.array([words] * 50, pa.large_string())
    other, counter = Counter("gpt2"), Counter("gpt2", threads=1)
    _core.deadline(0.1)
    try:
        with pytest.raises(UnitTimeoutError):
            counter.update(many)
        with pytest.raises(UnitTimeoutError):
            counter.update(["the cat"])
        thread = threading.Thread(target=other.update, args=([words],))
        thread.start()
        thread.join()
    finally:
        _core.deadline(None)
    assert other.finish().num_rows == 200_002  # "w", " w" and the numbers
    Counter("gpt2").update([words])


def test_each_unit_that_takes_too_long_is_named_and_the_next_build_does_it(project: Project) -> None:
    project.set(run__unit_timeout_s=1e-6)
    done = cli(project, "build")
    assert done.returncode == 2
    assert "count: 2 of 2 units failed" in done.stderr
    for shard in "ab":
        assert f"count data/raw/{shard}.jsonl: not done after 1e-06 s" in done.stderr
    assert project.outputs() == {}
    project.set(run__unit_timeout_s=1e6)
    assert cli(project, "build").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["count", "encode"])
def test_a_stage_that_fails_leaves_the_outputs_that_were_there(project: Project, stage: str) -> None:
    assert cli(project, "build").returncode == 0
    before = project.outputs()
    project.set(run__unit_timeout_s=1e-6)
    assert cli(project, "build", "--force", "--only", stage).returncode == 2
    assert project.outputs() == before
    assert cli(project, "build", "--rehash").returncode == 0
    project.set(run__unit_timeout_s=1e6)
    (stray := project.root / "data/quarantine/stray").write_text("not of a build", encoding="utf-8")
    assert cli(project, "build", "--force").returncode == 0
    assert not stray.exists()
    assert project.outputs() == before


def test_a_deadline_that_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="deadline"):
        _core.deadline(-1)
