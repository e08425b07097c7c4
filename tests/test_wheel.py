"""An installed tokenmill holds its flows and tasks inside itself, under one name each."""

import ast
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY, Project

ROOMS = ("flows", "tasks")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_this_repository_is_a_part_of_the_package(room: str) -> None:
    assert (REPOSITORY / "tokenmill" / room).resolve() == (REPOSITORY / room).resolve()


def test_no_module_imports_a_room_by_its_bare_name() -> None:
    """It would be a second copy of the module, or the folder of this name in a user's project."""
    sources = [path for room in ("tokenmill", *ROOMS) for path in (REPOSITORY / room).glob("*.py")]
    assert len(sources) > 50
    assert [path for path in sources if imported_packages(path) & set(ROOMS)] == []


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_a_wheel_asks_for_every_package_that_it_imports() -> None:
    """What it imports and another package brings along may be gone with that package's next version."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    sources = [path for room in ("tokenmill", *ROOMS) for path in (REPOSITORY / room).glob("*.py")]
    imported = set().union(*map(imported_packages, sources)) - sys.stdlib_module_names - {"tokenmill"}
    distributions = metadata.packages_distributions()
    assert len(imported) > 10
    assert [name for name in sorted(imported) if not asked & {*map(canonicalize_name, distributions[name])}] == []


def test_the_program_does_without_pandas_where_it_is_installed() -> None:
    script = (
        "import sys\n"
        "from tokenmill.__main__ import program\n"
        "sys.argv = ['tokenmill']\n"
        "try:\n"
        "    program()\n"
        "except SystemExit:\n"
        "    import pyarrow\n"
        "    pyarrow.array([[1], None])\n"
        "    print('pandas' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.endswith("False\n"), done.stderr


def add_own_rooms(project: Project) -> None:
    """Gives the project packages of its own that bear the names of tokenmill's rooms and say so when they are imported."""
    for room in ROOMS:
        (project.root / room).mkdir()
        (project.root / room / "__init__.py").write_text("raise SystemExit('a folder of the project was imported')\n")


def test_a_project_may_have_folders_named_flows_and_tasks(project: Project) -> None:
    add_own_rooms(project)
    done = project.run(sys.executable, "-m", "tokenmill", "build")  # which puts the project's folder first on sys.path
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not (REPOSITORY / "core/target/release").is_dir(), reason="the core was not compiled here")
def test_a_wheel_brings_one_package_that_builds_a_project(tmp_path: Path) -> None:
    maturin = [str(Path(sys.executable).with_name("maturin")), "build", "--release", "--locked", "--quiet"]
    subprocess.run([*maturin, "--out", str(tmp_path)], cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
    assert len(names) == len(set(names))
    assert {name.split("/")[0] for name in names} == {"tokenmill", f"{wheel.name.split('-cp')[0]}.dist-info"}
    for room in (*ROOMS, "project"):
        inside = {path.name for path in (REPOSITORY / "tokenmill" / room).iterdir() if path.is_file()}
        assert {name.split("/")[2] for name in names if name.startswith(f"tokenmill/{room}/")} == inside
    project, installed = Project(tmp_path), str(tmp_path / "installed")
    where = project.run(sys.executable, "-c", "import tokenmill; print(tokenmill.__file__)", PYTHONPATH=installed)
    assert where.stdout.startswith(installed)
    done = project.run(sys.executable, "-m", "tokenmill", "init", "new", PYTHONPATH=installed)
    assert done.returncode == 0, done.stderr
    project = Project(tmp_path / "new")
    add_own_rooms(project)
    project.write("a.jsonl", ["the cat sat on the mat"])
    project.set(run__engine="inline")
    done = project.run(sys.executable, "-m", "tokenmill", "build", PYTHONPATH=installed)
    assert done.returncode == 0, done.stderr
