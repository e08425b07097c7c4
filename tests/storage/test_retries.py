"""Transient errors are retried twice; errors in the data are not retried."""

from pathlib import Path

import pytest

from tests.builders.rounds import CallTask, driven
from tests.conftest import Project
from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import read_batches
from tokenmill.corpus.shards import Shard
from tokenmill.errors import CorpusError, DamagedError, PassingError
from tokenmill.rounds import Round, do
from tokenmill.stages.count_sums import SumFacts


def tries_of(project: Project, fails: int, error: CorpusError) -> int:
    """How often a unit that fails so often is tried; raises what is raised then."""
    tried = []

    def call(task: CallTask) -> None:
        tried.append(task)
        if len(tried) <= fails:
            raise error

    task = CallTask(name="a sum", key="ab" * 32, call=call)
    try:
        [done] = driven(do(Round("count", [task], SumFacts)), project.root)
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
