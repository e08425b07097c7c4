"""Inputs that change during a build, decompression bombs, and the same inputs in other environments."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tests.conftest import Project
from tests.faults import builds, shim
from tests.faults.builds import Scenario, Scenarios
from tests.faults.calls import calls_of, unclear
from tests.faults.table import Outcome, Row, Told

_MEMORY_MB_MAX = 1024
_BOMB_BYTES = 1 << 30


def _link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace(path: Path) -> None:
    other = path.with_name(".other")
    other.write_bytes(path.read_bytes().replace(b"cat", b"dog"))
    other.replace(path)


_CHANGES: dict[str, Callable[[Path], object]] = {
    "changes": lambda path: path.write_bytes(path.read_bytes().replace(b"cat", b"dog")),
    "grows": lambda path: path.write_bytes(path.read_bytes() * 2),
    "shrinks": lambda path: os.truncate(path, 20),
    "vanishes": lambda path: path.unlink(),
    "is replaced": _replace,
    "becomes a FIFO": _make_fifo,
    "becomes a link to itself": _link_to_itself,
}


def changing(known: Scenarios, short: bool, seed: int) -> Row:
    """An input that changes at a call on it: the build says so, records nothing of it, and does not hang; when the input is
    back as it was, the next build gives the bytes that belong to it."""
    row, randoms = Row("input changes"), random.Random(seed)
    scenario = known["tiny"]
    n_calls = sum(
        call[0] in ("open", "read", "stat") and call[1].endswith("raw/a.jsonl") for call in calls_of(scenario, ())
    )
    rounds = 1 if short else 25
    told = Told(row, rounds * len(_CHANGES))
    for _ in range(rounds):
        for name, change in _CHANGES.items():
            row.take(*_change(scenario, name, change, randoms.randint(1, n_calls)))
            told.show()
    return row


def _change(scenario: Scenario, name: str, change: Callable[[Path], object], n: int) -> tuple[Outcome, str]:
    project = scenario.fresh()
    path = project.root / "data/raw/a.jsonl"
    whole = path.read_bytes()
    pid = builds.start(
        project,
        lambda: shim.arm(project.root, ["open", "read", "stat"], "raw/a.jsonl", n, signal=signal.SIGSTOP),
    )
    _done, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        return "right", ""  # it made fewer calls this time
    change(path)
    os.kill(pid, signal.SIGCONT)
    ended = builds.await_end(pid, project)
    about = f"{name} at call {n}: "
    if ended.hung:
        return "hang", about + ended.said
    problem = None
    if ended.code:
        problem = unclear(ended, [str(path)], project.root)
    elif problem := scenario.differs():  # else it had the last look at the input behind it
        found = builds.state(project)
        change(scenario.fresh().root / "data/raw/a.jsonl")
        if builds.run(project).code == 0 and builds.state(project) == found:
            problem = None  # it has seen the input only as it is now
    path.unlink(missing_ok=True)
    path.write_bytes(whole)
    problem = problem or scenario.healed()
    return ("wrong", about + problem) if problem else ("error" if ended.code else "right", "")


def bombs(known: Scenarios, short: bool, seed: int) -> Row:
    """Small files that ask for much memory: refused with file and line, or processed, within memory_mb_max and a tenth."""
    row = Row("bombs")
    for name, make in _BOMBS.items():
        project = known["tiny"].fresh()
        project.set(run__memory_mb_max=_MEMORY_MB_MAX)
        make(project.root / "data/raw", _BOMB_BYTES >> (6 if short else 0))
        row.take(*_explode(project, name))
    return row


def _explode(project: Project, name: str) -> tuple[Outcome, str]:
    pid = builds.start(project)
    end_s = time.monotonic() + 4 * builds.HANGS_S
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end_s:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "hang", f"{name}: {builds.said(project)}"
        time.sleep(0.05)
    ended = builds.Ended(os.waitstatus_to_exitcode(status), builds.said(project))
    peak_mb = used.ru_maxrss * 1024 / 1e6
    if peak_mb > 1.1 * _MEMORY_MB_MAX:
        return "wrong", f"{name}: took {peak_mb:,.0f} MB, memory_mb_max is {_MEMORY_MB_MAX}"
    problem = unclear(ended, [str(project.root / "data/raw" / name)], project.root) if ended.code else None
    return ("wrong", f"{name}: {problem}") if problem else ("error" if ended.code else "right", "")


def _compressed_zeros(codec: str, suffix: str) -> Callable[[Path, int], None]:
    def make(folder: Path, n_bytes: int) -> None:
        block = bytes(1 << 20)
        with pa.CompressedOutputStream(str(folder / f"bomb.jsonl.{suffix}"), codec) as file:
            for _ in range(n_bytes >> 20):
                file.write(block)

    return make


def _wide_window(folder: Path, _n_bytes: int) -> None:
    """A zstd frame (RFC 8878) with a window of 2 GiB and one raw block of one byte."""
    frame = bytes.fromhex("28b52ffd") + bytes([0x00, (31 - 10) << 3]) + bytes([1 | 1 << 3, 0, 0]) + b"x"
    (folder / "bomb.jsonl.zst").write_bytes(frame)


def _deep(folder: Path, _n_bytes: int) -> None:
    deep = b"[" * 10**6 + b"]" * 10**6
    (folder / "bomb.jsonl").write_bytes(b'{"id": "x", "text": "x", "more": ' + deep + b"}\n")


_BOMBS = {
    "bomb.jsonl.zst": _compressed_zeros("zstd", "zst"),
    "bomb.jsonl.gz": _compressed_zeros("gzip", "gz"),
    "bomb.jsonl.zst, wide window": _wide_window,
    "bomb.jsonl": _deep,
}


def surroundings(known: Scenarios, short: bool, seed: int) -> Row:
    """The same inputs under another time zone, locale, umask, number of cores and workers, order in folders, path and
    PYTHONHASHSEED give the same bytes."""
    row = Row("surroundings")
    scenario = known["new"]
    for name in random.Random(seed).sample(sorted(_SURROUNDINGS), 2) if short else _SURROUNDINGS:
        project = scenario.fresh()
        ended = builds.run(project, lambda name=name, project=project: _SURROUNDINGS[name](project))  # type: ignore[misc]
        problem = ended.said if ended.code else scenario.differs()
        row.take("wrong" if problem else "right", f"{name}: {problem}")
    row.take(*_elsewhere(scenario))
    return row


def _set(**environment: str) -> Callable[[Project], None]:
    def change(_project: Project) -> None:
        os.environ.update(environment)
        time.tzset()

    return change


_SURROUNDINGS: dict[str, Callable[[Project], object]] = {
    "time zone": _set(TZ="Pacific/Chatham"),
    "locale": _set(LC_ALL="C", LANG="tr_TR.UTF-8", PYTHONUTF8="0"),
    "umask": lambda _project: os.umask(0o077),
    "one core": lambda _project: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "eight workers": lambda project: project.set(run__workers=8),
    "order in folders": lambda project: shim.shuffle(project.root, 7),
}


def _elsewhere(scenario: Scenario) -> tuple[Outcome, str]:
    """A build in a new process, with another seed of hashes, in another folder."""
    other = Project(scenario.fresh().root.with_name("an other place"))
    shutil.copytree(scenario.project.root, other.root, symlinks=True)
    done = other.run("tokenmill", "build", PYTHONHASHSEED="7", HOSTNAME="elsewhere")
    same = builds.state(other) == scenario.expected
    shutil.rmtree(other.root)
    return ("right", "") if same else ("wrong", f"another folder: {done.stderr}")
