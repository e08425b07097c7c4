"""Runs the work on file sets as units of a stage, so that the unit store keeps the results."""

from collections.abc import Callable, Sequence

from tokenmill.corpus.units import Unit
from tokenmill.file_sets.arrangement import SetFacts, Work
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.unit_runner import UnitRunner
from tokenmill.pipeline.unit_work import Job
from tokenmill.storage.unit_store import Done


def finisher(
    stage: str, runner: UnitRunner, run_units: RunUnits
) -> tuple[Callable[[Sequence[Work]], list[Done[SetFacts]]], Callable[[str], bool]]:
    """Gives two functions: one runs work unless the store has its result, the other says whether the store has a key's result."""

    def finish(work: Sequence[Work]) -> list[Done[SetFacts]]:
        by_name = {one.name: one for one in work}
        assert len(by_name) == len(work)
        return runner.finish(
            stage,
            _do,
            [Unit(name, name, ()) for name in by_name],
            {one.name: one.key for one in work},
            SetFacts,
            run_units,
            {one.name: one.do for one in work},
        )

    def is_done(key: str) -> bool:
        return not runner.anew and runner.store.find(key, SetFacts) is not None

    return finish, is_done


def _do(job: Job) -> SetFacts:
    facts: SetFacts = job.own(job.folder)
    return facts
