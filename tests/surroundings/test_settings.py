"""Settings of DVC and git that cannot be read, and a limit on the size of files, are named in one line."""

import errno
import resource
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.conftest import Project
from tokenmill.cli.answer import message_of
from tokenmill.cli.main import _of_settings
from tokenmill.errors import ParamsError, room
from tokenmill.orchestration.engines import _needed

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
    "git, submodules": ("project/.gitmodules", None),
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


def test_a_value_of_gits_settings_that_cannot_be_read_is_named(project: Project) -> None:
    path = project.root / ".git/config"
    path.write_text(path.read_text(encoding="utf-8") + "[core]\n repositoryformatversion = x\n", encoding="utf-8")
    done = project.cli("status")
    assert done.returncode == 2
    assert "error[TM401]: git config in" in done.stderr and "'core.repositoryformatversion' in file" in done.stderr


@pytest.mark.parametrize("name", ["config", "config.local"])
def test_a_key_before_the_first_section_of_dvcs_settings_is_named(project: Project, name: str) -> None:
    path = project.root / ".dvc" / name
    path.write_text("remote = x\n" + (path.read_text(encoding="utf-8") if path.exists() else ""), encoding="utf-8")
    done = project.cli("status")
    assert done.returncode == 2 and done.stderr.startswith(f"tokenmill: error[TM401]: {path}: DVC's settings: ")


def broken(module: str, variable: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the next import of a module read a broken file of settings."""
    import_module(module)
    path.write_bytes(NO_SETTINGS)
    monkeypatch.setenv(variable, str(path.parent))
    monkeypatch.delitem(sys.modules, module)


def test_settings_of_dask_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken("dask.config", "DASK_CONFIG", tmp_path / "own.yaml", monkeypatch)
    with pytest.raises(ParamsError, match=f"run.engine: dask: .*{tmp_path / 'own.yaml'}"):
        _needed("dask", "dask.config")


def test_settings_of_fsspec_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken("fsspec.config", "FSSPEC_CONFIG_DIR", tmp_path / "own.json", monkeypatch)
    with pytest.raises(ValueError, match="codec can't decode") as raised:
        import_module("fsspec.config")
    assert f"{tmp_path / 'own.json'}: fsspec's settings cannot be read" in message_of(_of_settings(raised.value))


@pytest.mark.parametrize(
    ("limit", "number", "words"),
    [
        (resource.RLIMIT_FSIZE, errno.EFBIG, "(this process may write files of 4,096 bytes: ulimit -f)"),
        (resource.RLIMIT_NOFILE, errno.EMFILE, "(this process may have 4,096 of them: ulimit -n)"),
    ],
)
def test_a_limit_on_files_is_named(tmp_path: Path, limit: int, number: int, words: str) -> None:
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (4096, before[1]))
    try:
        assert words in message_of(OSError(number, "", "a.parquet"))
        assert words in room(str(tmp_path)) or number == errno.EMFILE
    finally:
        resource.setrlimit(limit, before)
