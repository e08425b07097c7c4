"""Reads YAML that others may have written, within bounds of its length, its depth, and its length once aliases are written out."""

from collections.abc import Iterable
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

CHARACTERS_MAX = 2**20
"""A million characters take 8 s to read."""
_WRITTEN_OUT_MAX = 2 * CHARACTERS_MAX
_DEPTH_MAX = 64


class BoundsError(MarkedYAMLError):
    """YAML that goes beyond a bound."""

    def __str__(self) -> str:
        place = "" if self.problem_mark is None else f"line {self.problem_mark.line + 1}: "
        return f"{place}{self.problem}"


def load(text: str) -> Any:
    """The value of a YAML document. Raises ruamel.yaml's YAMLError, and BoundsError, which is one of them.

    >>> load("a: [1, two]")
    {'a': [1, 'two']}
    """
    check(text)
    return YAML(typ="safe", pure=True).load(text)


def check(text: str) -> None:
    """Raises BoundsError for a document beyond the bounds, before anything of it is made, and YAMLError for text that is no YAML.

    ruamel.yaml's fast reader crashes on 100,000 levels, and whoever walks through what aliases repeat may never end."""
    if len(text) > CHARACTERS_MAX:
        raise BoundsError(problem=f"it has {len(text):,} characters; expected {CHARACTERS_MAX:,} at most")
    try:
        _check(YAML(typ="safe").parse(text))  # the fast reader, which takes 2 % of the time
    except BoundsError:
        raise
    except YAMLError:
        _check(YAML(typ="safe", pure=True).parse(text))


def _check(events: Iterable[Any]) -> None:
    lengths: dict[str, int] = {}  # of the value of each anchor, written out
    opened: list[tuple[str, int]] = []  # the lists and mappings around an event: anchor, and the length before it
    n = 0
    for event in events:
        anchor: str = getattr(event, "anchor", None) or ""
        match event:
            case CollectionStartEvent():
                if len(opened) == _DEPTH_MAX:
                    _refuse(event, f"it is nested deeper than {_DEPTH_MAX} levels")
                opened.append((anchor, n))
                n += 1
            case CollectionEndEvent():
                anchor, before = opened.pop()
                lengths[anchor] = n - before
            case AliasEvent():
                if any(anchor == one for one, _ in opened):
                    _refuse(event, f"the alias *{anchor} is inside the value that it stands for")
                n += lengths.get(anchor, 0)
            case ScalarEvent():
                n += 1 + len(event.value)
                lengths[anchor] = 1 + len(event.value)
        if n > _WRITTEN_OUT_MAX:
            _refuse(event, f"with its aliases written out it has more than {_WRITTEN_OUT_MAX:,} characters")


def _refuse(event: Any, problem: str) -> NoReturn:
    raise BoundsError(problem=problem, problem_mark=event.start_mark)
