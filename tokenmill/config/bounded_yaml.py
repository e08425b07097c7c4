"""Reads YAML that others may have written, within bounds of its length, its depth, and its length once aliases are written out."""

from collections.abc import Iterable
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

CHARACTERS_MAX = 2**20
"""A million characters take 8 s to read."""
DVC_CHARACTERS_MAX = 2**24
"""Of dvc.yaml, dvc.lock and other files of DVC: a dvc.lock has about 120 for each file that it names."""
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
    check(text, CHARACTERS_MAX)
    return YAML(typ="safe", pure=True).load(text)


def load_of_dvc(text: str) -> Any:
    """The value of a file of DVC, read as DVC reads it. Raises what `load` raises."""
    check(text, DVC_CHARACTERS_MAX)
    return YAML(typ="safe").load(text)


def check(text: str, characters_max: int) -> None:
    """Raises BoundsError for a document beyond the bounds, before anything of it is made, and YAMLError for text that is no YAML.

    ruamel.yaml's fast reader crashes on 100,000 levels, and whoever walks through what aliases repeat may never end."""
    if len(text) > characters_max:
        raise BoundsError(problem=f"it has {len(text):,} characters; expected {characters_max:,} at most")
    written_out_max = 2 * max(len(text), CHARACTERS_MAX)
    try:
        _check(YAML(typ="safe").parse(text), written_out_max)  # the fast reader, which takes 2 % of the time
    except BoundsError:
        raise
    except YAMLError:
        _check(YAML(typ="safe", pure=True).parse(text), written_out_max)


def _check(events: Iterable[Any], written_out_max: int) -> None:
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
        if n > written_out_max:
            _refuse(event, f"with its aliases written out it has more than {written_out_max:,} characters")


def _refuse(event: Any, problem: str) -> NoReturn:
    raise BoundsError(problem=problem, problem_mark=event.start_mark)
