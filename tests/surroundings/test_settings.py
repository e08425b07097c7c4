"""Settings of DVC and git that cannot be read, and a limit on the size of files, are named in one line."""

import errno
import resource
from pathlib import Path

import pytest

from tests.conftest import Project
from tokenmill.cli.answer import message_of
from tokenmill.errors import room

NO_SETTINGS = b"\xff[[[broken\n= = {\0"
FILES = {
    "DVC, machine": ("system/config", "DVC_SYSTEM_CONFIG_DIR"),
    "DVC, account": ("global/config", "DVC_GLOBAL_CONFIG_DIR"),
    "DVC, project": ("project/.dvc/config", None),
    "DVC, copy": ("project/.dvc/config.local", None),
    "DVC, left out": ("project/.dvcignore", None),
    "git, machine": ("etc/gitconfig", "GIT_CONFIG_SYSTEM"),
    "git, account": ("home/gitconfig", "GIT_CONFIG_GLOBAL"),
    "git, project": ("project/.git/config", None),
}


@pytest.mark.parametrize(("name", "variable"), FILES.values(), ids=FILES)
def test_settings_that_cannot_be_read_are_named(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, variable: str | None
) -> None:
    path = project.root.parent / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(NO_SETTINGS)
    if variable is not None:
        monkeypatch.setenv(variable, str(path.parent if "DVC" in variable else path))
    done = project.cli("status")
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("tokenmill: error[TM401]: ") and name.removeprefix("project/") in line


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        said = message_of(OSError(errno.EFBIG, "File too large", "a.parquet")), room(str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for words in said:
        assert "(this process may write files of 1,048,576 bytes: ulimit -f)" in words
