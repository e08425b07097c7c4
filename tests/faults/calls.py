"""Builds whose file calls fail or that are killed at a file call, and the order of the calls that make files durable."""

import errno
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import NamedTuple

from tests.conftest import Project
from tests.faults import builds, shim
from tests.faults.builds import Ended, Scenario, Scenarios
from tests.faults.table import Outcome, Row, Told

ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE)

_PARTIAL = re.compile(r"(?:\.\d+-\d+)?\.partial|\.[\w-]{22}\.tmp")
_VARIES = re.compile(rf"{_PARTIAL.pattern}|[0-9a-f]{{20,}}|(?<=/)[0-9a-f]{{2}}(?=/|$)|(?<=count-)\w{{8}}")
# Calls whose errors DVC, or Python, does not tell as they are.
_UNTOLD = (
    ("rename", "/data/report/"),
    ("lock", "/.tokenmill/lock"),
    ("truncate", "/.dvc/tmp/rwlock.lock"),
)
_PUBLISHED = ("/data", "/dvc.lock", "/.tokenmill/units")
Call = tuple[str, ...]
"""The kind of a call, and the path or the two paths that it is about."""


def errors(known: Scenarios, short: bool, seed: int) -> Row:
    """Each call on a file of the project fails once, with each error: one call of each kind and place, drawn at random."""
    row = Row("errors")
    scenario = known["tiny"]
    randoms = random.Random(seed)
    tries = [(place, error) for place in places(scenario, randoms) for error in ERRORS]
    if short:
        untold = [one for one in tries if (one[0].kind, one[0].part) in _UNTOLD and one[1] == errno.EIO]
        assert len(untold) == len(_UNTOLD), untold
        tries = [*untold, *randoms.sample([one for one in tries if one not in untold], 2)]
    told = Told(row, len(tries))
    for place, error in tries:
        row.take(*fail(scenario, place, error))
        told.show()
    return row


class Place(NamedTuple):
    """The n-th call of a kind, from 1, on paths that hold `part`."""

    kind: str
    part: str
    n: int


def places(scenario: Scenario, randoms: random.Random, kinds: Sequence[str] = ()) -> list[Place]:
    """One of the calls that a build makes of each kind on each file of the project; files that differ in their temporary name
    or their digest alone are one."""
    calls = calls_of(scenario, kinds)
    found = set()
    for kind, *paths in calls:
        literal = max(_VARIES.split(paths[-1].removeprefix(str(scenario.project.root))), key=len)
        found.add((kind, literal))
    counted = {
        (kind, part): sum(call[0] == kind and any(part in path for path in call[1:]) for call in calls)
        for kind, part in found
    }
    return [Place(*one, randoms.randint(1, counted[one])) for one in sorted(found)]


def calls_of(scenario: Scenario, kinds: Sequence[str]) -> list[Call]:
    """The calls of these kinds (none: of all) that a build makes on files of the project, in order."""
    project = scenario.fresh()
    with _log(project) as (log, calls):
        ended = builds.run(project, lambda: shim.arm(project.root, log=log))
        assert ended.code == 0, ended.said
        return [call for call in calls() if not kinds or call[0] in kinds]


@contextmanager
def _log(project: Project) -> Iterator[tuple[int, Callable[[], list[Call]]]]:
    """A descriptor for the shim to write to, and a function that gives the calls in it."""
    path = project.root.parent / "calls"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        yield log, lambda: [tuple(line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()]
    finally:
        os.close(log)


def fail(scenario: Scenario, place: Place, error: int) -> tuple[Outcome, str]:
    """What comes of a build one of whose calls fails."""
    project = scenario.fresh()
    with _log(project) as (log, calls):
        ended = builds.run(project, lambda: shim.arm(project.root, [place.kind], place.part, place.n, error, log=log))
        counted = [call for call in calls() if call[0] == place.kind and any(place.part in path for path in call[1:])]
        struck = (counted[place.n - 1 :] or [()])[0]
    about = f"{place}, {errno.errorcode[error]}: "
    if ended.hung:
        return "hang", about + ended.said
    if ended.code == 0:
        problem = scenario.differs() or scenario.healed()
        return ("wrong", f"{about}ended with 0; {problem}") if problem else ("right", "")
    problem = unclear(ended, struck[1:], project.root) or scenario.healed()
    return ("wrong", f"{about}{problem}") if problem else ("error", "")


def unclear(ended: Ended, paths: Sequence[str], root: Path) -> str | None:
    """What an error message lacks: it is to be one, and to name a path, or the file or folder that it is in."""
    message = ended.said.partition("tokenmill: error[")[2].partition("]: ")[2]
    if ended.code != 2 or not message or "Traceback" in ended.said:
        return f"no clear error, exit code {ended.code}: {ended.said}"
    names = [_PARTIAL.sub("", path.removeprefix(str(root)).lstrip("/")) for path in paths]
    for name in names:
        folder = str(PurePath(name).parent)
        if name in message or (str(root) if folder == "." else folder) in message:
            return None
    if f"{root}/.dvc" in message:  # DVC does not say which of the files that it moves about
        return None
    return f"the error names no path: {message}"


def order(known: Scenarios, short: bool, seed: int) -> Row:
    """Each file and folder that a build publishes is flushed before it gets its name, and the folder it is in afterwards, before
    dvc.lock says so; one that could not be flushed is not flushed again, nor published."""
    row = Row("fsync order")
    scenario = known["tiny"]
    root = str(scenario.project.root)
    problem = order_problem(calls_of(scenario, ("rename", "link", "write", "fsync")), root)
    row.take("wrong" if problem else "right", problem or "")
    randoms = random.Random(seed)
    own = [place for place in places(scenario, randoms, ("fsync",)) if not place.part.startswith("/.dvc")]
    for place in randoms.sample(own, 1) if short else own:
        row.take(*_fail_flush(scenario, place))
    return row


def order_problem(calls: Sequence[Call], root: str) -> str | None:
    """What was published before it was flushed, or not flushed at the end, if anything."""
    written: set[str] = set()  # files with bytes, and folders with names, that are not flushed
    for kind, *paths in calls:
        path = paths[-1].removeprefix(root)
        if kind == "fsync":
            written.discard(path or "/")
        if not path.startswith(_PUBLISHED) or path.endswith((".gitignore", ".tmp")):  # which DVC writes
            continue
        if kind == "write":
            written.add(path)
        if kind == "rename":
            source = paths[0].removeprefix(root)
            if left := {one for one in written if one == source or one.startswith(f"{source}/")}:
                return f"renamed to {path} before fsync of {sorted(left)[0]}"
            if path == "/dvc.lock" and (left := {one for one in written if ".partial" not in one}):
                return f"recorded before fsync of {sorted(left)[0]}"
        from_dvc = (
            paths[0].endswith(".tmp") or "/.dvc/cache/" in paths[0]
        )  # the same bytes once more, linked to its cache
        if kind in ("rename", "link") and not path.endswith(".partial") and not from_dvc:
            written.add(str(PurePath(path).parent))
    written = {one for one in written if ".partial" not in one}
    return f"ended without fsync of {sorted(written)[0]}" if written else None


def _fail_flush(scenario: Scenario, place: Place) -> tuple[Outcome, str]:
    """What comes of a file or folder whose fsync fails."""
    project = scenario.fresh()
    with _log(project) as (log, calls):
        ended = builds.run(
            project, lambda: shim.arm(project.root, [place.kind], place.part, place.n, errno.EIO, log=log)
        )
        made = calls()
    fsyncs = [i for i, call in enumerate(made) if call[0] == "fsync" and place.part in call[1]]
    if len(fsyncs) < place.n:
        return "right", ""
    path = made[fsyncs[place.n - 1]][1]
    if path.removeprefix(str(project.root)).startswith("/.dvc"):  # the order of calls differs from run to run
        return "right", ""
    later = [
        call for call in made[fsyncs[place.n - 1] + 1 :] if path in call[1:] and call[0] in ("fsync", "rename", "link")
    ]
    problem = f"{later[0]} after its fsync failed" if later else unclear(ended, [path], project.root)
    problem = problem or scenario.healed()
    return ("wrong", f"{place}: {problem}") if problem else ("error", "")
