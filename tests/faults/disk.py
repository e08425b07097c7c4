"""Builds on a disk that fills up: a tmpfs whose limit is moved."""

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults import builds
from tests.faults.builds import Scenario, Scenarios
from tests.faults.calls import unclear
from tests.faults.table import Outcome, Row, Told

_STEP_BYTES = 1 << 14  # the build writes some 160 kB
_ROOMY_BYTES = 1 << 30


def disk_full(known: Scenarios, short: bool, seed: int) -> Row:
    """A disk that is full after so many bytes, in steps of 16 kB: the error names the path and what is free, what was recorded
    before is untouched, and the build finishes once there is room."""
    row = Row("disk full")
    with _disk(known.folder / "disk") as disk:
        if disk is None:
            row.skipped = "no tmpfs can be mounted here: run it as root"
            return row
        scenario = Scenarios(disk)["changed"]
        project = scenario.fresh()
        before = _used_bytes(disk)
        assert builds.run(project).code == 0
        steps = range(0, _used_bytes(disk) - before + _STEP_BYTES, _STEP_BYTES)
        told = Told(row, len(steps))
        for room_bytes in random.Random(seed).sample(steps, 2) if short else steps:
            row.take(*_fill(scenario, disk, room_bytes, known.folder / "said.txt"))
            told.show()
    return row


def _fill(scenario: Scenario, disk: Path, room_bytes: int, output: Path) -> tuple[Outcome, str]:
    project = scenario.fresh()
    recorded = {path: path.read_bytes() for path in (project.root / ".dvc/cache/files").rglob("*") if path.is_file()}
    _resize(disk, _used_bytes(disk) + room_bytes)
    ended = builds.await_end(builds.start(project, output=str(output)), project, output=str(output))
    lost = [str(path) for path, content in recorded.items() if not path.exists() or path.read_bytes() != content]
    _resize(disk, _ROOMY_BYTES)
    about = f"{room_bytes:,} bytes of room: "
    if ended.hung:
        return "hang", about + ended.said
    if lost:
        return "wrong", f"{about}{lost[0]} is not as it was"
    problem = None
    if ended.code:
        problem = unclear(ended, [str(project.root)], project.root)
        problem = problem or (None if "MB are free" in ended.said else f"how much is free is not said: {ended.said}")
    problem = problem or scenario.healed()
    return ("wrong", about + problem) if problem else ("error" if ended.code else "right", "")


@contextmanager
def _disk(folder: Path) -> Iterator[Path | None]:
    """A tmpfs mounted at `folder`; None where that is not permitted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_ROOMY_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _resize(disk: Path, n_bytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={n_bytes}", str(disk)], check=True)


def _used_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
