"""Reads untrusted YAML, with bounds on its length, its depth, and its length after expanding aliases."""

from collections.abc import Iterable
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

CHARACTERS_MAX = 2**20
"""The default limit. A million characters take 8 s to read."""
DVC_CHARACTERS_MAX = 2**24
"""The limit of dvc.yaml, dvc.lock and other files of DVC. A dvc.lock has about 120 characters for each file that it names."""
_DEPTH_MAX = 64


class BoundsError(MarkedYAMLError):
    """Raised for YAML that exceeds a bound."""

    def __str__(self) -> str:
        place = "" if self.problem_mark is None else f"line {self.problem_mark.line + 1}: "
        return f"{place}{self.problem}"


def load(text: str) -> Any:
    """Parses a YAML document. Raises ruamel.yaml's YAMLError, and its subclass BoundsError.

    >>> load("a: [1, two]")
    {'a': [1, 'two']}
    """
    check(text, CHARACTERS_MAX)
    try:
        return YAML(typ="safe").load(text)
    except YAMLError:  # those of the parser in Python say more
        return YAML(typ="safe", pure=True).load(text)


def load_of_dvc(text: str) -> Any:
    """Parses a file of DVC as DVC does. Raises what `load` raises."""
    check(text, DVC_CHARACTERS_MAX)
    return YAML(typ="safe").load(text)


def check(text: str, characters_max: int) -> None:
    """Raises BoundsError for a document that exceeds the bounds, without building its values, and YAMLError for invalid YAML.

    ruamel.yaml's fast reader crashes on 100,000 levels, and expanding nested aliases may never end."""
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
    lengths: dict[str, int] = {}  # the expanded length of each anchor's value
    opened: list[tuple[str, int]] = []  # the open lists and mappings: anchor, and the length before it
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
