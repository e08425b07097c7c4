"""Builds that are killed, or asked to end, at random moments and at chosen calls; and many builds at once, some killed."""

import json
import os
import random
import signal
import time

from tests.conftest import Project
from tests.faults import builds, shim
from tests.faults.builds import Scenario, Scenarios
from tests.faults.calls import Place, places
from tests.faults.table import Outcome, Row, Told

_ENDS_S = 5.0  # after a signal that asks it to
_AT = ("rename", "fsync", "open", "unlink", "link", "write", "mkdir", "rmdir", "truncate")
_NAMES = ("new", "changed", "set-back")


def kills(known: Scenarios, short: bool, seed: int, n: int = 1000) -> Row:
    """Builds killed at random moments, up to three in a row."""
    row, randoms = Row("SIGKILL at a moment"), random.Random(seed)
    n = 13 if short else n
    told = Told(row, n)
    for i in range(n):
        scenario = known["changed" if short else _NAMES[i % 3]]
        project = scenario.fresh()
        moments = [randoms.uniform(0, scenario.seconds * 1.1) for _ in range(randoms.choice([1, 1, 2, 3]))]
        for moment_s in moments:
            pid = builds.start(project)
            time.sleep(moment_s)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        row.take(*_outcome(scenario, f"{scenario.name}, after {', '.join(f'{one:.3f} s' for one in moments)}"))
        told.show()
    return row


def kills_at_calls(known: Scenarios, short: bool, seed: int) -> Row:
    """Builds killed before a call that writes: one of those of each kind on each file."""
    row, randoms = Row("SIGKILL at a call"), random.Random(seed)
    names = ("tiny",) if short else _NAMES
    tries = [(known[name], place) for name in names for place in places(known[name], randoms, _AT)]
    if short:
        tries = randoms.sample(tries, 12)
    told = Told(row, len(tries))
    for scenario, place in tries:
        row.take(*kill_at(scenario, place))
        told.show()
    return row


def kill_at(scenario: Scenario, place: Place) -> tuple[Outcome, str]:
    """What comes of a build that is killed before a call."""
    project = scenario.fresh()
    builds.run(project, lambda: shim.arm(project.root, [place.kind], place.part, place.n, signal=signal.SIGKILL))
    return _outcome(scenario, f"{scenario.name}, at {place}")


def signals(known: Scenarios, short: bool, seed: int) -> Row:
    """SIGTERM and Ctrl-C at random moments: the build ends within 5 s, with exit code 143 or 130 and a line on how to go on."""
    row, randoms = Row("SIGTERM, Ctrl-C"), random.Random(seed)
    n = 4 if short else 200
    told = Told(row, n)
    for i in range(n):
        scenario = known["changed" if short else _NAMES[i % 3]]
        number, code = [(signal.SIGTERM, 143), (signal.SIGINT, 130)][i % 2]
        project = scenario.fresh()
        moment_s = randoms.uniform(0.05, scenario.seconds)
        pid = builds.start(project)
        time.sleep(moment_s)
        os.kill(pid, number)
        ended = builds.await_end(pid, project, _ENDS_S)
        about = f"{scenario.name}, {number.name} after {moment_s:.3f} s"
        if ended.hung:
            row.take("hang", f"{about}: {ended.said}")
        elif ended.code not in (0, code) or "Traceback" in ended.said or (ended.code and "to go on" not in ended.said):
            row.take("wrong", f"{about}: ended with {ended.code}: {ended.said}")
        else:
            row.take(*_outcome(scenario, about))
        told.show()
    return row


def at_once(known: Scenarios, short: bool, seed: int) -> Row:
    """Many builds of one project at once: one works, the others wait (--wait) or say who does, and who does may be killed."""
    row, randoms = Row("at once"), random.Random(seed)
    n_rounds, n_builds = (1, 8) if short else (10, 50)
    scenario = known["changed"]
    for i in range(n_rounds):
        project = scenario.fresh()
        outputs = {}
        for j in range(n_builds):
            output = f"said-{j}.txt"
            outputs[builds.start(project, lambda: None, *(["--wait"] if j % 5 == 0 else []), output=output)] = output
        killed = None
        if i % 2 == 0:
            time.sleep(randoms.uniform(0, 2 * scenario.seconds))
            killed = _holder(project)
            if killed in outputs:
                os.kill(killed, signal.SIGKILL)
        for pid, output in outputs.items():
            ended = builds.await_end(pid, project, 10 * builds.HANGS_S, output)
            busy = ended.code == 2 and "is building this project" in ended.said
            fine = ended.code == 0 or (ended.code == -signal.SIGKILL and pid == killed)
            outcome: Outcome = "hang" if ended.hung else "error" if busy else "right" if fine else "wrong"
            row.take(outcome, f"build {output} of round {i + 1}: ended with {ended.code}: {ended.said}")
        row.take(*_outcome(scenario, f"round {i + 1}"))
    return row


def _holder(project: Project) -> int | None:
    """The build that is at work, by the lock's file."""
    try:
        return int(json.loads((project.root / ".tokenmill/lock").read_bytes())["pid"])
    except (ValueError, FileNotFoundError):
        return None


def _outcome(scenario: Scenario, about: str) -> tuple[Outcome, str]:
    problem = scenario.healed()
    return ("wrong", f"{about}: {problem}") if problem else ("right", "")
