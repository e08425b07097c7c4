"""An installed tokenmill is one package, which makes projects that it builds."""

import ast
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY, Project

SOURCES = [
    path
    for path in (
        *(REPOSITORY / "tokenmill").rglob("*.py"),
        *(REPOSITORY / "reader/tokenmill_reader").rglob("*.py"),
        *REPOSITORY.glob("flows/*.py"),
        *REPOSITORY.glob("tasks/*.py"),
    )
    if "template" not in path.parts
]


def test_the_library_imports_nothing_of_a_project() -> None:
    """The folders flows/ and tasks/ are those of whatever project it works for."""
    library = [path for path in SOURCES if path.is_relative_to(REPOSITORY / "tokenmill")]
    assert len(library) > 80
    assert [path for path in library if imported_packages(path) & {"flows", "tasks"}] == []


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.slow
def test_a_wheel_asks_for_every_package_that_it_imports() -> None:
    """What it imports and another package brings along may be gone with that package's next version."""
    asked = {canonicalize_name(one.name) for one in asked_packages()}
    imported = (
        set().union(*map(imported_packages, SOURCES))
        - sys.stdlib_module_names
        - {"tokenmill", "tokenmill_reader", "flows", "tasks"}
    )
    distributions = metadata.packages_distributions()
    assert len(imported) > 10
    assert [name for name in sorted(imported) if not asked & {*map(canonicalize_name, distributions[name])}] == []


@pytest.mark.slow
def test_a_wheel_imports_every_package_that_it_asks_for() -> None:
    bounded_for_prefect = {"fastapi", "sqlalchemy"}
    of_httpx = {"socksio"}  # it imports it for a SOCKS proxy
    imported = set().union(*map(imported_packages, SOURCES))
    names = {
        canonicalize_name(one)
        for name, ones in metadata.packages_distributions().items()
        if name in imported
        for one in ones
    }
    lines = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert {canonicalize_name(Requirement(line).name) for line in lines} - names == bounded_for_prefect | of_httpx


def test_the_lowest_versions_of_packages_are_said() -> None:
    assert [one.name for one in asked_packages() if one.specifier.contains("0")] == []


def asked_packages() -> list[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in optional if name != "dev" for line in optional[name])]
    return [Requirement(line) for line in lines]


def test_the_next_major_version_of_a_package_is_not_taken_untried() -> None:
    bounded_by_others = {
        "alembic",
        "dvc-data",
        "scmrepo",
        "cryptography",
        "pyopenssl",
    }  # by Prefect, DVC, model-signing
    stable = {"packaging", "distributed"}  # distributed's versions are dates
    free = {one.name for one in asked_packages() if one.specifier.contains("9999")}
    assert free == bounded_by_others | stable
    tokenizers = next(one for one in asked_packages() if one.name == "tokenizers")
    assert not tokenizers.specifier.contains("1.0.0rc3", prereleases=True)


def test_licence_texts_and_packages_are_those_of_the_lock_files() -> None:
    command = [sys.executable, "core/third_party.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_locked_package_has_its_hashes() -> None:
    """`pip install --require-hashes` takes no other file than those that were there when the versions were locked."""
    locks = ["requirements.lock", "runtime.lock", "core/wheel.lock"]
    for lock in (*locks, "benchmarks/requirements.lock", "interop/requirements.lock"):
        text = (REPOSITORY / lock).read_text(encoding="utf-8")
        packages = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
        assert len(packages) > 10
        assert [one.splitlines()[0] for one in packages if "--hash=sha256:" not in one] == []
    installs = [
        line
        for line in (REPOSITORY / "Makefile").read_text(encoding="utf-8").splitlines()
        if "pip install" in line
        and "--extra dev" not in line
        and "tokenizers>=" not in line  # of test-lowest and test-newest
        and not line.startswith("NEWEST_TOOLS = ")
    ]
    assert installs and all("--require-hashes" in line or "--no-index" in line for line in installs)


@pytest.mark.slow
@pytest.mark.skipif(not (REPOSITORY / "core/target/release").is_dir(), reason="the core was not compiled here")
def test_a_wheel_brings_one_package_that_builds_a_project(tmp_path: Path) -> None:
    maturin = [str(Path(sys.executable).with_name("maturin")), "build", "--release", "--locked", "--quiet"]
    subprocess.run([*maturin, "--out", str(tmp_path)], cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = {name.split(".dist-info/")[1] for name in names if ".dist-info/" in name}
    assert {"licenses/LICENSE", "licenses/core/THIRD-PARTY.txt"} < about
    assert {"sboms/python.cyclonedx.json", "sboms/tokenmill-core.cyclonedx.json"} < about
    assert len(names) == len(set(names))
    assert {name.split("/")[0] for name in names} == {
        "tokenmill",
        "tokenmill_reader",
        f"{wheel.name.split('-cp')[0]}.dist-info",
    }
    inside = {
        path.relative_to(REPOSITORY / folder).as_posix()
        for folder, package in (("", "tokenmill"), ("reader", "tokenmill_reader"))
        for path in (REPOSITORY / folder / package).rglob("*")
        if path.is_file()
    }
    inside = {path for path in inside if "__pycache__" not in path and not path.endswith(".so")}
    assert {name for name in names if ".dist-info/" not in name and not name.endswith(".so")} == inside
    python, project = bare_environment(tmp_path / "bare", wheel), Project(tmp_path)
    alone = {"PATH": f"{python.parent}:/usr/bin:/bin", "PYTHONPATH": "", "PREFECT_HOME": str(tmp_path / "prefect")}
    where = project.run(str(python), "-c", "import tokenmill; print(tokenmill.__file__)", **alone)
    assert where.stdout.startswith(str(tmp_path / "bare")), where.stderr
    done = project.run(str(python), "-m", "tokenmill", "init", "new", "--example", "english", **alone)
    assert done.returncode == 0, done.stderr
    done = Project(tmp_path / "new").run(str(python.with_name("tokenmill")), "build", **alone)
    assert done.returncode == 0, done.stderr


def bare_environment(folder: Path, wheel: Path) -> Path:
    """Makes an environment with the wheel, installed by pip, and the packages of this one; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python
