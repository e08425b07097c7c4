"""Puts the errors of the tasks of a round together."""

from collections.abc import Sequence

from tokenmill.corpus.bad_documents import Bad, BadInputError, ColumnError, joined, lines_of
from tokenmill.errors import TokenmillError, UnitsError
from tokenmill.rounds import F, Outcome, Task
from tokenmill.storage.unit_store import Done

_OF_DOCUMENTS = {"TM201", "TM202", "TM209", "TM210"}


def all_done(round: str, tasks: Sequence[Task[F]], outcomes: Sequence[Outcome[F]]) -> list[Done[F]]:
    """The results of tasks that are all done. Raises the error of the one that failed; if several failed, a UnitsError that names
    the first twenty errors."""
    failed: list[tuple[Task[F], TokenmillError]] = []
    done: list[Done[F]] = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        if isinstance(outcome, TokenmillError):
            failed.append((task, outcome))
        else:
            done.append(outcome)
    if len(failed) == 1:
        raise failed[0][1]
    if failed:
        codes = {error.code for _, error in failed}
        if len(codes) > 1 and codes <= _OF_DOCUMENTS:
            codes = {"TM210"}
        raise _all_of(round, len(tasks), failed, codes.pop() if len(codes) == 1 else None)
    return done


def _all_of(round: str, n_tasks: int, failed: Sequence[tuple[Task[F], TokenmillError]], code: str | None) -> UnitsError:
    bad_by_shard: dict[str, list[Bad]] = {}
    n = 0
    is_all = True
    for task, error in failed:
        if isinstance(error, BadInputError):
            bad, n_bad, is_all = error.first, error.n, is_all and error.is_all
        elif isinstance(error, ColumnError) and task.unit is not None:
            bad, n_bad = {task.unit.pieces[0].shard.name: [Bad(error.words, setting=error.setting)]}, 1
        else:
            words = "; ".join(error.lines)
            bad, n_bad = {task.name: [Bad(words if task.name in words else f"{task.name}: {words}")]}, 1
        n += n_bad
        for name, documents in bad.items():
            for document in documents:
                bad_by_shard[name] = joined(bad_by_shard.get(name, []), document)
    kept = n_tasks - len(failed)
    head = f"{len(failed)} of {n_tasks} units failed; the results of the other {kept} are kept for the next build."
    lines, fix, _ = lines_of(bad_by_shard, n, is_all)
    return UnitsError(round, [head, *lines], fix, code=code)
