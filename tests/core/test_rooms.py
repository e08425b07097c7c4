"""The rooms of the core: each uses only rooms above it, and there are no circles among the modules inside one."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SOURCES = REPOSITORY / "core/src"
ROOMS = re.findall(
    r"^(?:pub )?mod (?!tests;)(\w+);", (SOURCES / "lib.rs").read_text(encoding="utf-8"), flags=re.MULTILINE
)
_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{.*", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"\bcrate((?:::\w+)+)")
_GROUP = re.compile(r"\bcrate((?:::\w+)*)::\{([^}]*)\}")


def module_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return parts[:-1] if parts[-1] == "mod" else parts


MODULES = {module_of(path): path for path in SOURCES.rglob("*.rs") if path.stem not in ("lib", "tests")}


def used(path: Path) -> set[tuple[str, ...]]:
    """The modules that a file uses by their whole path, outside its tests."""
    text = _TESTS.sub("", path.read_text(encoding="utf-8"))
    text = re.sub(r"//.*", "", text)
    names = {tuple(found.split("::")[1:]) for found in _PATH.findall(text)}
    for front, group in _GROUP.findall(text):
        names |= {(*front.split("::")[1:], one.strip().split("::")[0]) for one in group.split(",")}
    found = set()
    for name in names:
        while name and name not in MODULES:
            name = name[:-1]
        found |= {name} if name else set()
    return found - {module_of(path)}


def test_the_rooms_are_those_of_the_table_in_the_same_order() -> None:
    table = re.findall(r"^//! \| \[?`(\w+)`", (SOURCES / "lib.rs").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert table == ROOMS
    assert {module[0] for module in MODULES} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_uses_only_rooms_above_it(room: str) -> None:
    uses = {name[0] for module, path in MODULES.items() if module[0] == room for name in used(path)}
    assert uses - {room} <= set(ROOMS[: ROOMS.index(room)])


@pytest.mark.parametrize("room", ROOMS)
def test_there_is_no_circle_inside_a_room(room: str) -> None:
    # A room's mod.rs may use its modules; a module that uses what its mod.rs defines would be a circle, too.
    inside = {module: path for module, path in MODULES.items() if module[0] == room}
    graph = {module: {name for name in used(path) if name[0] == room} for module, path in inside.items()}
    TopologicalSorter(graph).prepare()
