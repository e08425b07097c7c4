"""--rehash finds files whose bytes changed while length, time and inode stayed the same. Altered outputs are never reused."""

import hashlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.builds import units_done
from tests.builders.damage import flip_a_byte
from tests.builders.prefect_server import prefect_home
from tests.conftest import Project

pytestmark = pytest.mark.slow

OUTPUTS = [
    "data/counts/counts.parquet",
    "data/tokenizer/tokenizer.json",
    "data/tokens/documents/a.jsonl.parquet",
    "data/tokens/manifest.json",
    "data/quarantine/quarantine.parquet",
    "data/report/report.json",
]

KILLED = """
import os, signal, sys
from tokenmill.pipeline import build
from tokenmill.versioning import dvc_stage
from tokenmill.__main__ import program
def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
{where} = killed
sys.argv = ["tokenmill", "build", "--rehash"]
program()
"""


def in_place(path: Path, old: bytes, new: bytes) -> None:
    """Other bytes in a file that has the same length, times of change and inode."""
    before = path.stat()
    with path.open("r+b") as file:
        content = file.read()
        assert len(old) == len(new)
        assert old in content
        file.seek(0)
        file.write(content.replace(old, new, 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def is_nothing_done(project: Project) -> bool:
    return "Nothing to do" in project.build().stderr


def built_anew(new_project: Callable[[str], Project], of: Project) -> Project:
    """A project with the same documents and parameters, built from nothing."""
    fresh = new_project("fresh")
    for name in ("params.yaml", "dvc.yaml"):
        (fresh.root / name).write_bytes((of.root / name).read_bytes())
    for path in (fresh.root / "data/raw").iterdir():
        path.unlink()
    for path in (of.root / "data/raw").iterdir():
        (fresh.root / "data/raw" / path.name).write_bytes(path.read_bytes())
    fresh.set(run__engine="inline")  # the engine changes no byte
    fresh.build()
    return fresh


def assert_equal(one: Project, other: Project) -> None:
    assert one.outputs() == other.outputs()
    assert (one.root / "dvc.lock").read_bytes() == (other.root / "dvc.lock").read_bytes()


def assert_whole(project: Project) -> None:
    """What DVC's cache and the unit store have, they have as it was put there."""
    for path in (project.root / ".dvc/cache/files/md5").glob("*/*"):
        assert hashlib.md5(path.read_bytes()).hexdigest() == f"{path.parent.name}{path.stem}", path
    for path in (project.root / ".tokenmill/units").rglob("tokens.parquet"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert digest in (path.parent / "facts.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_a_byte_changed_in_place_is_seen_and_recorded(
    new_project: Callable[[str], Project], engine: str, tmp_path: Path, prefect_database: Path
) -> None:
    project = new_project("project")
    project.set(run__engine=engine)
    home = {"PREFECT_HOME": str(prefect_home(tmp_path / "prefect", prefect_database))} if engine == "threads" else {}
    project.build(**home)
    in_place(project.root / "data/raw/a.jsonl", b"cat", b"cow")
    assert is_nothing_done(project)
    done = project.build("--rehash", **home)
    assert set(project.actions(done).values()) == {"run"}
    assert "the others are finished already" in done.stderr
    assert_equal(project, built_anew(new_project, project))
    assert is_nothing_done(project)


def test_a_shard_damaged_in_place_is_left_out(new_project: Callable[[str], Project]) -> None:
    project = new_project("project")
    project.set(source__on_bad_shard="quarantine", source__on_bad_document="quarantine", source__bad_documents_max=2)
    project.build()
    in_place(project.root / "data/raw/b.jsonl", b"{", b"(")
    project.build("--rehash")
    assert_equal(project, built_anew(new_project, project))
    assert is_nothing_done(project)


def test_a_dependency_that_is_no_document_changed_in_place_is_seen(project: Project) -> None:
    project.depend("notes.txt", "count")
    (notes := project.root / "notes.txt").write_text("one", encoding="utf-8")
    project.build()
    in_place(notes, b"one", b"two")
    assert is_nothing_done(project)
    assert project.actions(project.build("--rehash"))["count"] == "run"
    assert is_nothing_done(project)


@pytest.mark.parametrize(
    ("name", "how"), [*((name, "--rehash") for name in OUTPUTS), (OUTPUTS[0], "--force"), (OUTPUTS[2], "--force")]
)
def test_an_output_altered_in_place_is_made_again(project: Project, name: str, how: str) -> None:
    project.build()
    before, lock = project.outputs(), (project.root / "dvc.lock").read_bytes()
    flip_a_byte(project.root / name)
    assert is_nothing_done(project)
    project.build(how)
    assert project.outputs() == before
    assert (project.root / "dvc.lock").read_bytes() == lock
    assert_whole(project)
    assert is_nothing_done(project)


def test_a_unit_altered_in_place_is_not_used_after_a_build_with_rehash_that_has_nothing_to_do(
    new_project: Callable[[str], Project],
) -> None:
    project = new_project("project")
    project.build()
    units = project.root / ".tokenmill/units"
    linked = {path.stat().st_ino for path in (project.root / "data").rglob("*") if path.is_file()}
    alone = [path for path in units.rglob("*.parquet") if path.stat().st_ino not in linked]
    assert alone
    for path in alone:
        flip_a_byte(path)
    assert "Nothing to do" in project.build("--rehash").stderr
    assert not any(path.exists() for path in alone)
    project.write("c.jsonl", ["the new cat"])
    project.build()
    assert_equal(project, built_anew(new_project, project))


@pytest.mark.parametrize(
    "where", ["build.Build.settle_first", "dvc_stage.DvcStage.restore", "build.Build._checked", "dvc_stage._dump"]
)
def test_a_build_after_one_with_rehash_that_was_killed_ends_as_that_one_would(
    new_project: Callable[[str], Project], where: str, tmp_path: Path, prefect_database: Path
) -> None:
    project = new_project("project")
    home = {}
    if where == "build.Build.settle_first":
        project.set(run__engine="threads")
        home = {"PREFECT_HOME": str(prefect_home(tmp_path / "prefect", prefect_database))}
    project.build(**home)
    flip_a_byte(project.root / "data/tokens/documents/b.jsonl.parquet")
    in_place(project.root / "data/raw/a.jsonl", b"cat", b"cow")
    killed = project.run(sys.executable, "-c", KILLED.format(where=where), **home)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    project.set(run__engine="inline")
    project.build()
    assert_equal(project, built_anew(new_project, project))
    assert_whole(project)


def test_altered_outputs_that_dvc_sees_are_not_taken_from_the_unit_store(project: Project) -> None:
    """As after its site cache was deleted: nothing is remembered then, and no build is told to read again."""
    project.build()
    before = project.outputs()
    flip_a_byte(project.root / "data/tokens/documents/a.jsonl.parquet")
    forget = "from tokenmill.versioning.dvc_repository import forget_hashes; from pathlib import Path; forget_hashes(Path('.'))"
    assert project.run(sys.executable, "-c", forget).returncode == 0
    done = project.build()
    assert units_done(done.stderr, "encode") == "1 of 2"
    assert project.outputs() == before
    assert_whole(project)
