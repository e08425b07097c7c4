"""dvc.yaml says what the stages depend on, and is safe to run."""

import ast
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import REPOSITORY
from tokenmill.code import imported_modules

# Modules that say how, not what: they change no byte of an output.
HOW = {
    f"tokenmill/{name}.py"
    for name in (
        "console",
        "dvc_files",
        "dvc_repository",
        "errors",
        "git",
        "integers",
        "leftovers",
        "links",
        "md5",
        "registry",
        "remotes",
        "retries",
        "signing",
        "threads",
        "units",
        "versions",
    )
}
LOCK = "tokenmill.lock"  # what it pins is data
CORE = {"core/src", "core/Cargo.toml", "core/Cargo.lock"}
STAGES = YAML(typ="safe", pure=True).load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def imported(module: Path) -> set[Path]:
    """The project's modules that a module imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    paths = {REPOSITORY / (name.replace(".", "/") + ".py") for name in names if name.split(".")[0] == "tokenmill"}
    return {path.resolve() for path in paths if path.is_file()}


def all_imported(module: Path) -> set[str]:
    found: set[Path] = set()
    waiting = {module.resolve()}
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting |= imported(path) - found
    return {path.relative_to(REPOSITORY.resolve()).as_posix() for path in found}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_all_code_that_it_imports(stage: str) -> None:
    code = all_imported(REPOSITORY / f"tasks/{stage.replace('-', '_')}.py") - HOW
    named = {dep for dep in STAGES[stage]["deps"] if not dep.startswith("data/") and dep != LOCK}
    assert named == code | CORE


@pytest.mark.parametrize("stage", STAGES)
def test_the_units_of_a_stage_depend_on_all_code_that_it_imports(stage: str) -> None:
    module = REPOSITORY / f"tokenmill/tasks/{stage.replace('-', '_')}.py"
    found = {path.resolve().relative_to(REPOSITORY.resolve()).as_posix() for path in imported_modules(module)}
    assert found == all_imported(module)


@pytest.mark.parametrize("stage", STAGES)
def test_a_command_is_a_constant(stage: str) -> None:
    assert STAGES[stage]["cmd"] == f"tokenmill build --only {stage}"


def keys(params: Any) -> set[str]:
    return set(params) | {key for value in params.values() if isinstance(value, dict) for key in keys(value)}


def test_no_parameter_has_a_name_that_dvc_leaves_out_of_its_run_cache() -> None:
    """DVC drops `size` and `nfiles` from the key (treeverse/dvc#10296), and restores stale outputs."""
    params = YAML(typ="safe", pure=True).load((REPOSITORY / "params.yaml").read_text(encoding="utf-8"))
    assert not keys(params) & {"size", "nfiles"}


def test_every_parameter_but_run_and_refresh_is_tracked() -> None:
    params = YAML(typ="safe", pure=True).load((REPOSITORY / "params.yaml").read_text(encoding="utf-8"))
    tracked = {name for stage in STAGES.values() for name in stage["params"] if "." not in name}
    assert tracked == set(params) - {"run", "refresh"}


def test_every_stage_reads_the_documents_as_the_readme_of_the_data_says() -> None:
    stages = YAML(typ="safe", pure=True).load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert all("data/raw" in stage["deps"] for stage in stages.values())
    text = " ".join((REPOSITORY / "data/README.md").read_text(encoding="utf-8").split())
    assert "in the place of `data/raw` in the `deps` of all four stages" in text
