"""Checks rooms in a minute: their quick tests and the nearest ones elsewhere, their pages, lint, types and layers.

make check ROOM="chat formats"     these rooms: folders of tokenmill/ or tests/, or reader, core, docs, flows, tasks
make check                         the rooms of the change: what differs from main, or on main from origin/main
"""

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grimp

from tests.times import budget, recorded, room_of

ROOT = Path(__file__).parent.parent
PACKAGES = ("tokenmill", "tokenmill_reader", "flows", "tasks")
PAGES = ("test_prose", "test_docs", "test_reference", "test_contributing", "test_layout")
"""The tests of what people read, which run with every room."""
OF_IMPORTS = [
    f"tests/pipeline/test_code_digest.py::test_a_stage_depends_on_{name}"
    for name in (
        "every_room_that_it_imports_and_that_decides_bytes",
        "what_it_imports_of_the_reader_and_decides_bytes",
    )
]
"""The tests of what stages import, which an import in any room may fail."""
OF_FOLDERS = {"flows": ("orchestration", "pipeline"), "tasks": ("orchestration", "pipeline"), "terminal": ("cli",)}
"""The rooms of tests that run the code of a folder without importing it."""
FURTHER_TEST_S_MAX = 45
"""How many seconds of tests outside the rooms run, the nearest first, of which one always runs. With three processes they take a
third of it."""
QUICK_TEST_S = 720
"""About the seconds of all quick tests, where no run of them is recorded."""


@dataclass(frozen=True)
class Change:
    """The rooms to check, and the modules in them that changed. `files`: the changed test files."""

    rooms: frozenset[str]
    modules: frozenset[str]
    files: frozenset[str]


def main(rooms: Sequence[str]) -> int:
    """Checks, and prints what failed. The exit code is 2 for a room that does not exist."""
    started_s = time.monotonic()
    graph = grimp.build_graph(*PACKAGES, "tests", cache_dir=str(ROOT / ".venv/grimp"))
    unknown = set(rooms) - rooms_of(graph)
    if unknown:
        print(f"There is no room {', '.join(sorted(unknown))}. Rooms: {', '.join(sorted(rooms_of(graph)))}.")
        return 2
    change = change_of_rooms(rooms, graph) if rooms else change_of_paths(changed_paths(), graph)
    if not change.rooms:
        print("Nothing differs from main. Name the rooms to check, for example: make check ROOM=chat.")
        return 0
    tests, n_left = chosen_tests(change, graph)
    print(f"checking {', '.join(sorted(change.rooms))}: {len(tests)} test files", flush=True)
    failed = run_all(commands(tests, change))
    print(f"{'failed: ' + ', '.join(failed) if failed else 'all is well'} ({time.monotonic() - started_s:.0f} s)")
    if n_left and not failed:
        print(f"{n_left} more test files use these rooms; `make test` runs all.")
    return 1 if failed else 0


def rooms_of(graph: grimp.ImportGraph) -> set[str]:
    """The names of all rooms."""
    library = {_room(one.split(".")) for one in graph.modules if one.startswith("tokenmill.") and "__" not in one}
    tests = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    return library | tests | {"core", "docs", "flows", "reader", "tasks"}


def _room(parts: Sequence[str]) -> str:
    """The room of a path or module: the folder in tokenmill/ or tests/, or the feature, whose tests are in a folder of its name."""
    return parts[2] if parts[1] == "features" and len(parts) > 2 else parts[1]


def changed_paths() -> list[str]:
    """The paths that differ from main, and those that git does not know yet."""
    on_main = git("rev-parse", "--abbrev-ref", "HEAD") == ["main"]
    [base] = git("merge-base", "HEAD", "origin/main" if on_main else "main") or ["HEAD"]
    return git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")


def git(*arguments: str) -> list[str]:
    """The lines that a command of git prints; none if it fails."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()


def change_of_rooms(rooms: Iterable[str], graph: grimp.ImportGraph) -> Change:
    """Takes every module of the rooms as changed."""
    packages = ("tokenmill", "tokenmill.features", "tests")
    heads = {f"{package}.{room}" for room in rooms for package in packages} | {*rooms} & {"flows", "tasks"}
    heads |= {"tokenmill_reader"} if "reader" in rooms else set()
    modules = {one for one in graph.modules if any(one == head or one.startswith(f"{head}.") for head in heads)}
    return Change(frozenset(rooms), frozenset(modules), frozenset())


def change_of_paths(paths: Iterable[str], graph: grimp.ImportGraph) -> Change:
    """The rooms and modules of changed files."""
    rooms, modules, files = set(), set(), set()
    for path in paths:
        parts = path.removeprefix("reader/").removesuffix(".py").split("/")
        module = ".".join(parts).removesuffix(".__init__")
        if parts[-1].startswith("test_") and path.endswith(".py"):
            files.add(path)
        elif module in graph.modules:
            modules.add(module)
        if parts[0] in ("tokenmill", "tests") and len(parts) > 1:
            rooms.add(_room(parts).removesuffix(".toml"))
        else:
            rooms.add("reader" if parts[0] == "tokenmill_reader" else parts[0] if len(parts) > 1 else "docs")
    return Change(frozenset(rooms), frozenset(modules), frozenset(files))


def chosen_tests(change: Change, graph: grimp.ImportGraph) -> tuple[list[str], int]:
    """The test files to run: those of the rooms, those that changed, and the nearest of those that import the changed modules; and
    how many of these were left."""
    own = [
        path.relative_to(ROOT).as_posix()
        for room in change.rooms
        for folder in OF_FOLDERS.get(room, (room,))
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
    ]
    chosen = dict.fromkeys([*(f"tests/{name}.py" for name in PAGES), *sorted(change.files), *sorted(own)])
    chosen = {file: None for file in chosen if (ROOT / file).is_file()} | dict.fromkeys(OF_IMPORTS)
    further = [file for file in nearest(change.modules, graph) if file not in chosen]
    if "core" in change.rooms:
        further += [file for file in naming_the_core() if file not in chosen and file not in further]
    seconds, n_left = 0.0, 0
    for file in further:
        if seconds + estimate_s(file) > FURTHER_TEST_S_MAX and file != further[0]:
            n_left += 1
        else:
            seconds += estimate_s(file)
            chosen[file] = None
    return list(chosen), n_left


def nearest(modules: Iterable[str], graph: grimp.ImportGraph) -> list[str]:
    """The test files that import one of the modules, then those that import an importer, and where there are none, those behind."""
    found: dict[str, None] = {}
    seen = reached = set(modules)
    for distance in itertools.count():
        if not reached or (distance >= 2 and found):
            break
        reached = {one for module in reached for one in graph.find_modules_that_directly_import(module)} - seen
        seen = seen | reached
        tests = sorted(one for one in reached if one.split(".")[-1].startswith("test_"))
        found |= dict.fromkeys(f"{one.replace('.', '/')}.py" for one in tests)
        reached -= {*tests, "tests.conftest"}  # which nearly all tests import
    return list(found)


def naming_the_core() -> list[str]:
    """The test files that call the core itself."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [one.relative_to(ROOT).as_posix() for one in tests if "_core" in one.read_text(encoding="utf-8")]


def estimate_s(file: str) -> float:
    """The seconds of a test file in the last run of all quick tests, or else its part of its room's budget."""
    seconds = recorded("quick")
    if seconds:
        return seconds.get(file, 0.0)
    room = room_of(file)
    n_files = len(list((ROOT / "tests" / room).rglob("test_*.py"))) or 1
    return float(QUICK_TEST_S * budget()["quick"].get(room, 0) / 100 / n_files)


def commands(tests: Sequence[str], change: Change) -> dict[str, list[str]]:
    """The commands to run at the same time, by name."""
    binaries = ROOT / ".venv/bin"
    found = {
        "ruff check": [str(binaries / "ruff"), "check", "."],
        "ruff format": [str(binaries / "ruff"), "format", "--check", "."],
        "layers": [str(binaries / "lint-imports"), "--no-logo"],
        "types": [str(binaries / "mypy"), "--strict", *PACKAGES],
        "tests": [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", "not slow", *tests],
    }
    if any(module.startswith("tokenmill.") for module in change.modules):
        found["types that a caller sees"] = [
            str(binaries / "basedpyright"),
            "--ignoreexternal",
            "--verifytypes",
            "tokenmill",
        ]
    if "docs" in change.rooms:
        found["links of the pages"] = [str(binaries / "mkdocs"), "build", "--strict", "--quiet"]
    if "core" in change.rooms:
        manifest = ["--manifest-path", "core/Cargo.toml"]
        found["cargo fmt"] = ["cargo", "fmt", *manifest, "--check"]
    return found


def run_all(to_run: dict[str, list[str]]) -> list[str]:
    """Runs the commands, prints the output of those that fail, and returns their names."""
    env = {**os.environ, "PATH": f"{ROOT / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"}
    running = {
        name: subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name, command in to_run.items()
    }
    failed = []
    for name, process in running.items():
        said, _ = process.communicate()
        if process.returncode != 0:
            failed.append(name)
            print(f"--- {name}\n{said}", flush=True)
        elif name == "tests":
            print(*re.findall(r"^\d+ passed.*$", said, flags=re.MULTILINE))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
