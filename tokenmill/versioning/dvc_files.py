"""DVC looks at each path of a stage once, though it asks again and again."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

Known = dict[tuple[str, ...], Any]


def ask_once(entries: Iterable[Any], known: Known) -> None:
    """Lets DVC look at a dependency or output only when what it found is not known: else it would list and hash a folder up to
    eight times a stage, for a thousand files 30 ms each time.

    Sets an attribute of these objects of our own repository; DVC's classes stay as they are.
    """
    for entry in entries:
        look = "read_params" if is_params(entry) else "_build"
        key = (look, entry.fs_path, *getattr(entry, "params", ()))
        setattr(entry, look, partial(_known_or_found, known, key, getattr(entry, look)))


def _known_or_found(known: Known, key: tuple[str, ...], find: Callable[..., Any], *args: Any, **named: Any) -> Any:
    if key not in known:
        known[key] = find(*args, **named)
    return known[key]


def is_params(dependency: Any) -> bool:
    """Whether it is parameters that a stage depends on, not a path."""
    from dvc.dependency.param import ParamsDependency

    return isinstance(dependency, ParamsDependency)
