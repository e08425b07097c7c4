"""Transient errors are retried twice; errors in the data are not retried."""

from pathlib import Path

import pytest
from prefect import flow, task

from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError, DamagedError, PassingError
from tokenmill.pipeline.executor import RunUnits, run_in_threads
from tokenmill.storage.unit_store import Done

UNIT = Unit("a.jsonl", "a.jsonl.parquet", ())


class Facts:
    n_left_out = 0


DONE = Done(Path(), Facts(), {})


def tries_of(run_units: RunUnits, fails: int, error: CorpusError) -> int:
    """How often a unit that fails so often is tried; raises what is raised then."""
    tried = []

    def do(unit: Unit) -> Done[Facts]:
        tried.append(unit)
        if len(tried) <= fails:
            raise error
        return DONE

    try:
        assert run_units("count", do, [UNIT], []) == [DONE]
    except type(error):
        assert len(tried) <= fails
    return len(tried)


def check(run_units: RunUnits) -> None:
    assert tries_of(run_units, 1, PassingError("not now")) == 2
    assert tries_of(run_units, 9, PassingError("not now")) == 3
    assert tries_of(run_units, 9, DamagedError("cut short")) == 1


def test_an_inline_build_tries_again() -> None:
    check(run_in_threads(1))


@pytest.mark.slow
def test_a_flow_tries_again() -> None:
    from prefect.testing.utilities import prefect_test_harness

    from tokenmill.orchestration.unit_tasks import UNIT_TASK, finished, map_units

    unit_task = task(name="count", **UNIT_TASK)(lambda unit, do: finished("count", unit, do))
    with prefect_test_harness(server_startup_timeout=120):
        flow(name="tries")(lambda: check(map_units(unit_task)))()


def test_only_what_the_system_could_not_read_may_pass(tmp_path: Path) -> None:
    def error_of(path: Path) -> CorpusError:
        with pytest.raises(CorpusError) as raised:
            list(read_batches(Shard(path, "a.txt", 0), "text", None, "\n"))
        return raised.value

    assert isinstance(error_of(Path("/proc/self/mem")), PassingError)  # opens, but its first page cannot be read
    assert not isinstance(error_of(tmp_path / "gone.txt"), PassingError)
