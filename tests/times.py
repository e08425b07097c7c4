"""Records how long each test file takes in a run of all quick or all slow tests, as shares of the whole."""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 400.0
"""How long tests wait for what takes seconds on a quiet machine, and minutes beside other work. Only a hang takes longer."""

_TESTS = Path(__file__).parent
KINDS = {"not slow": "quick", "slow": "slow"}
"""The name of a run by its marker expression."""


class Recorder:
    """A plugin of pytest that adds up the seconds of each test file, and keeps them in pytest's cache after a run of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds one phase of a test."""
        self._seconds[report.nodeid.split("::")[0]] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Keeps the sums of a run that came to its end, unless only some of the tests were asked for."""
        option = self._config.option
        kind = KINDS.get(option.markexpr)
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or option.collectonly:
            return
        if kind and not option.keyword and not option.lf and self._config.args == self._config.getini("testpaths"):
            self._config.cache.set(_key(kind), self._seconds)  # type: ignore[union-attr]


def recorded(kind: str) -> dict[str, float]:
    """The seconds of each test file in the last run of that kind; empty if there was none. `kind`: "quick" or "slow"."""
    path = _TESTS.parent / ".pytest_cache/v" / _key(kind)
    found: dict[str, float] = json.loads(path.read_bytes()) if path.exists() else {}
    return found


def budget() -> Any:
    """The share of each room of tests in the seconds of all quick, and of all slow tests, in percent."""
    return tomllib.loads((_TESTS / "budget.toml").read_text(encoding="utf-8"))


def room_of(file: str) -> str:
    """The room of a test file.

    >>> room_of("tests/chat/test_pairs.py"), room_of("tests/test_docs.py")
    ('chat', 'test_docs')
    """
    return file.split("/")[1].removesuffix(".py")


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """The share of each room in the seconds of all test files, in percent."""
    rooms: Counter[str] = Counter()
    for file, part in seconds.items():
        rooms[room_of(file)] += part
    whole = sum(rooms.values())
    return {room: 100 * part / whole for room, part in rooms.items()}


def _key(kind: str) -> str:
    return f"tokenmill/{kind}"
