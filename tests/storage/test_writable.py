"""Before it starts, a build names a folder that it cannot write to."""

import os
from pathlib import Path

import pytest

from tests.conftest import Project

# Root may write everywhere, unless it gives that up.
AS_A_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", ["data", "data/tokens", ".tokenmill", ".dvc/cache", ".dvc/cache/files/md5", ".dvc", "."]
)
def test_a_folder_that_may_not_be_written_into_is_named_before_the_work(project: Project, folder: str) -> None:
    path = project.root / folder
    path.mkdir(parents=True, exist_ok=True)
    if folder == ".":
        (project.root / ".tokenmill").mkdir()
        project.run("tokenmill", "status")  # which makes what DVC needs
    path.chmod(0o555)
    done = project.run(*AS_A_USER, "tokenmill", "build")
    path.chmod(0o755)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()  # not even "count: started"
    assert line.startswith(f"tokenmill: error[TM602]: {path}: this user may not write into the folder. A build writes ")
    assert project.outputs() == {}
    project.build()


def test_a_file_in_the_place_of_a_folder_is_named_before_the_work(project: Project) -> None:
    path: Path = project.root / "data/tokens"
    path.write_text("x", encoding="utf-8")
    done = project.run("tokenmill", "build")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"tokenmill: error[TM602]: {path}: expected a folder, found a file.")
