"""Of two builds at once, one runs and the other fails with a message or waits. Leftovers of a killed build block none."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Project
from tokenmill.storage.atomic import partial_path
from tokenmill.storage.lock import project_lock
from tokenmill.versioning.leftovers import mend_dvc_lock

HOLD = """
import sys, time
from pathlib import Path
from tokenmill.storage.lock import project_lock
with project_lock(Path.cwd(), False, lambda: None):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""


@contextmanager
def holder(project: Project, seconds: float = 60) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", HOLD, str(seconds)]
    with subprocess.Popen(command, cwd=project.root, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_disk_that_gives_no_locks_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))  # as NFS without its lock service does

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=r"\.tokenmill/lock"), project_lock(project.root, False, lambda: None):
        pass


@pytest.mark.slow
def test_a_second_build_says_who_is_at_work_and_waits_if_told_to(project: Project) -> None:
    with holder(project) as process:
        done = project.run("tokenmill", "build")
        assert done.returncode == 2
        assert f"process {process.pid} on " in done.stderr
        assert "since 20" in done.stderr
        assert "--wait" in done.stderr
        assert not project.outputs()
    with holder(project, seconds=3):
        done = project.build("--wait")
        assert "waiting for process" in done.stderr


@pytest.mark.slow
def test_dvc_repro_does_not_work_beside_a_build(project: Project) -> None:
    with holder(project):
        repro = project.run("dvc", "repro")
        assert repro.returncode != 0
        assert "is building this project" in repro.stderr
    assert project.run("dvc", "repro", "count").returncode == 0


@pytest.mark.slow
def test_dvc_does_not_touch_what_a_build_is_working_on(project: Project) -> None:
    from tokenmill.versioning import dvc_stage

    with dvc_stage.opened(project.root, "count", {}) as stage, stage.recording():
        repro = project.run("dvc", "repro", "count")
        assert repro.returncode != 0
        assert "is busy" in repro.stderr
        status = project.run("tokenmill", "status")
        assert status.returncode == 2
        assert f"process {os.getpid()} (" in status.stderr
        assert len(status.stderr.splitlines()) == 1
        rwlock = project.root / ".dvc/tmp/rwlock"
        held = rwlock.read_bytes()
        os.utime(rwlock, (1, 1))  # as after a step of the clock: this process seems to have begun later
        assert project.run("tokenmill", "status").returncode == 2
        assert rwlock.read_bytes() == held
        (project.root / "data/counts").mkdir(parents=True)


@pytest.mark.slow
def test_the_lock_of_a_killed_build_is_free_and_its_temporary_files_go(project: Project) -> None:
    with holder(project) as process:
        process.kill()
        process.wait()
    live = partial_path(project.root / "data/tokens")
    dead = [
        project.root / name.replace("PID", f"{process.pid}-1")
        for name in (
            "data/tokens.PID.partial",
            "data/report/report.json.PID.partial",
            ".tokenmill/units/abc.PID.partial",
            ".tokenmill/digests.json.PID.partial",
            "dvc.lock.PID.partial",
            ".dvc/cache/files/md5/ab/.Qz3vJX4pTq2kYw0n5m7b8A.tmp",
            f".dvc/cache/runs/ab/{'a' * 64}/{'b' * 64}.Qz3vJX4pTq2kYw0n5m7b8A.tmp",
        )
    ]
    live.mkdir()
    for path in dead:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert (
        project.run("tokenmill", "build").returncode == 0
    )  # another process than this one, which is at work on `live`
    assert not [path for path in dead if path.exists()]
    assert not dead[-1].parent.exists()
    assert live.exists()
    assert (project.root / ".tokenmill/lock").read_bytes() == b""


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", '{"write": {', "reused"])
def test_a_stale_lock_on_paths_does_not_stop_a_build(project: Project, content: str) -> None:
    path = project.root / ".dvc/tmp/rwlock"
    if content == "reused":  # the id of a killed process is now that of another: of this one
        held = {"pid": os.getpid(), "cmd": "tokenmill build"}
        content = json.dumps({"write": {str(project.root / "data/counts"): held}})
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    os.utime(path, (1, 1))
    with holder(project) as process:
        process.kill()
    assert project.run("tokenmill", "build").returncode == 0  # another process than the one of that id


@pytest.mark.parametrize(
    "left", ["", "\0" * 300, "schema: '2.0'\n", "schema: '2.0'\nstages:\n", "schema: '2.0'\nstages:\n  co"]
)
def test_a_dvc_lock_that_was_cut_short_is_removed(left: str, tmp_path: Path) -> None:
    (tmp_path / "dvc.lock").write_text(left, encoding="utf-8")
    mend_dvc_lock(tmp_path)
    assert not (tmp_path / "dvc.lock").exists()


def test_a_dvc_lock_with_a_merge_that_is_not_resolved_stays(tmp_path: Path) -> None:
    merge = "schema: '2.0'\nstages:\n<<<<<<< HEAD\n  a: {}\n=======\n  b: {}\n>>>>>>> other\n"
    (tmp_path / "dvc.lock").write_text(merge, encoding="utf-8")
    mend_dvc_lock(tmp_path)
    assert (tmp_path / "dvc.lock").read_text(encoding="utf-8") == merge


def test_a_dvc_lock_beyond_the_bounds_of_yaml_stays(tmp_path: Path) -> None:
    bomb = "schema: '2.0'\nstages: " + "[" * 70
    (tmp_path / "dvc.lock").write_text(bomb, encoding="utf-8")
    mend_dvc_lock(tmp_path)
    assert (tmp_path / "dvc.lock").read_text(encoding="utf-8") == bomb


@pytest.mark.slow
def test_a_dvc_lock_that_was_cut_is_made_again_without_work(project: Project) -> None:
    project.build()
    lock = project.root / "dvc.lock"
    before = lock.read_bytes()
    with holder(project) as process:
        process.kill()
    for cut in (before[: len(before) // 2], before[:100], b""):
        lock.write_bytes(cut)
        (project.root / ".tokenmill/lock").write_text("killed", encoding="utf-8")
        done = project.build()
        assert "run" not in project.actions(done).values()
        assert lock.read_bytes() == before


@pytest.mark.slow
def test_outputs_that_dvc_has_not_recorded_do_not_stop_a_restore(project: Project) -> None:
    project.build()
    before = project.outputs()
    project.set(train_vocab__vocab_size=270)
    project.build()
    output = project.root / "data/tokens/documents/a.jsonl.parquet"
    output.unlink()
    output.write_bytes(b"of a killed build")
    project.set(train_vocab__vocab_size=272)
    assert "run" not in project.actions(project.build()).values()
    assert project.outputs() == before


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", '{"read": {"/some/where": [{"pid": 1', "[]", '{"write": 7}'])
def test_a_list_of_dvc_that_was_cut_short_is_mended_without_a_trace_of_the_build(
    project: Project, content: str
) -> None:
    (rwlock := project.root / ".dvc/tmp/rwlock").write_text(content, encoding="utf-8")
    done = project.cli("build", "--only", "count")
    assert (done.returncode, "DVC" in done.stderr) == (0, False), done.stderr
    rwlock.write_text(content, encoding="utf-8")
    for command in ("status", "doctor"):
        assert "JSON" not in (done := project.cli(command)).stdout + done.stderr
        assert not rwlock.exists() or rwlock.read_text(encoding="utf-8") != content
        rwlock.write_text(content, encoding="utf-8")


def test_a_list_of_dvc_that_cannot_be_mended_is_named(project: Project) -> None:
    (project.root / ".dvc/tmp/rwlock").mkdir()
    done = project.run("tokenmill", "build")
    assert done.returncode == 2
    assert ".dvc/tmp/rwlock: Is a directory" in done.stderr
    assert "Traceback" not in done.stderr
