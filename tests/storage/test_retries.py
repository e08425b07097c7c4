"""Transient errors are retried twice; errors in the data are not retried."""

from pathlib import Path

import pytest

from tests.conftest import Project
from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Unit
from tokenmill.errors import CorpusError, DamagedError, PassingError
from tokenmill.pipeline.build import start
from tokenmill.pipeline.executor import run_in_threads
from tokenmill.pipeline.unit_work import Job
from tokenmill.stages.count_sums import SumFacts


def tries_of(project: Project, fails: int, error: CorpusError) -> int:
    """How often a unit that fails so often is tried; raises what is raised then."""
    runner = start(project.root / "params.yaml", "count", False, False).runner
    tried = []

    def do(job: Job) -> SumFacts:
        tried.append(job.unit)
        if len(tried) <= fails:
            raise error
        return SumFacts(1)

    unit = Unit("a sum", "", ())
    try:
        [done] = runner.finish("count", do, [unit], {unit.name: "ab" * 32}, SumFacts, run_in_threads(1))
        assert done.facts == SumFacts(1)
    except type(error):
        assert len(tried) <= fails
    return len(tried)


@pytest.mark.parametrize(
    ("n", "fails", "error"),
    [(2, 1, PassingError("not now")), (3, 9, PassingError("not now")), (1, 9, DamagedError("cut short"))],
)
def test_a_unit_is_tried_again(project: Project, n: int, fails: int, error: CorpusError) -> None:
    assert tries_of(project, fails, error) == n


def test_only_what_the_system_could_not_read_may_pass(tmp_path: Path) -> None:
    def error_of(path: Path) -> CorpusError:
        with pytest.raises(CorpusError) as raised:
            list(read_batches(Shard(path, "a.txt", 0), Reading("text", None, "\n")))
        return raised.value

    assert isinstance(error_of(Path("/proc/self/mem")), PassingError)  # opens, but its first page cannot be read
    assert not isinstance(error_of(tmp_path / "gone.txt"), PassingError)
