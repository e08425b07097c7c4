"""`make check` runs the tests of a room and the nearest ones elsewhere."""

import subprocess
import sys

import grimp
import pytest

from tests import check
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*check.PACKAGES, "tests", cache_dir=str(REPOSITORY / ".venv/grimp"))


def test_every_room_has_tests_and_few_from_elsewhere(graph: grimp.ImportGraph) -> None:
    rooms = check.rooms_of(graph)
    assert {"chat", "core", "docs", "errors", "faults", "flows", "reader"} <= rooms
    for room in rooms:
        tests, _ = check.chosen_tests(check.change_of_rooms([room], graph), graph)
        assert "tests/test_prose.py" in tests
        own = tuple(f"tests/{folder}/" for folder in check.OF_FOLDERS.get(room, (room,)))
        further = [file for file in tests if file.count("/") > 1 and not file.startswith(own) and "::" not in file]
        assert len(further) <= 1 or sum(map(check.estimate_s, further)) <= check.FURTHER_TEST_S_MAX
        assert further or room in ("docs", *check.OF_FOLDERS) or (REPOSITORY / "tests" / room).is_dir(), room


def test_tests_that_import_a_changed_module_run_though_they_are_elsewhere(graph: grimp.ImportGraph) -> None:
    change = check.change_of_paths(["tokenmill/format_facts.py", "docs/index.md", "tests/view/test_answers.py"], graph)
    assert change.rooms == {"format_facts", "docs", "view"}
    assert change.modules == {"tokenmill.format_facts"}
    tests, _ = check.chosen_tests(change, graph)
    assert {"tests/test_contributing.py", "tests/view/test_answers.py", "tests/view/test_server.py"} <= set(tests)
    assert "tests/formats/test_formats.py" in check.nearest(change.modules, graph)


def test_an_import_by_which_a_stage_reaches_another_room_is_found_from_any_room(graph: grimp.ImportGraph) -> None:
    tests, _ = check.chosen_tests(check.change_of_paths(["tokenmill/versioning/registry.py"], graph), graph)
    assert set(check.OF_IMPORTS) <= set(tests)
    asked = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-p",
        "no:xdist",
        "-o",
        "addopts=",
        "-q",
        *check.OF_IMPORTS,
    ]
    done = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "8 tests collected" in done.stdout


def test_a_part_that_fails_is_named_with_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    said = {
        name: [sys.executable, "-c", f"print('it says {name}'); exit({code})"]
        for name, code in {"a": 1, "b": 0}.items()
    }
    assert check.run_all(said) == ["a"]
    shown = capsys.readouterr().out
    assert "--- a\nit says a" in shown and "it says b" not in shown


def test_a_room_that_does_not_exist_is_refused() -> None:
    command = [sys.executable, "-m", "tests.check", "kitchen"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.startswith("There is no room kitchen. Rooms: analysis, ")
