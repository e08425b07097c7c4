"""DVC's way with local files: it passes over a folder that it cannot list, waits for ever at a FIFO or a full disk, looks at each
path again and again."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenmill.storage.atomic import open_regular, raise_it

Known = dict[tuple[str, ...], Any]


@cache
def make_strict() -> None:
    """Lets DVC raise OSError for a folder that it cannot list, as it would otherwise record what is in it as not there, and
    for what is opened for reading and is no file; and diskcache.Timeout when its databases cannot be written to, which it
    would otherwise try for ever, whatever the reason. And lets a clone have its name only when it is whole: the empty file that
    DVC makes first, also where a file system has no clones, would be taken for the one wanted after a kill or a failed call."""
    import diskcache  # type: ignore[import-untyped]
    from dvc.progress import Tqdm
    from dvc_objects.fs import local, system
    from dvc_objects.fs.utils import tmp_fname

    def opened(path: str, mode: str = "r", encoding: str | None = None) -> object:
        return open(path, mode, encoding=encoding, opener=open_regular if "r" in mode else None)

    clone = system.reflink

    def cloned(source: str, target: str) -> None:
        part = Path(target).parent / tmp_fname()
        try:
            clone(source, str(part))  # type: ignore[no-untyped-call]
            part.replace(target)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise

    system.reflink = cloned
    local.os = SimpleNamespace(**{**vars(os), "walk": partial(os.walk, onerror=raise_it)})  # type: ignore[assignment, attr-defined]
    local.open = opened  # type: ignore[attr-defined]
    Tqdm.postfix = {}  # it is asked for when Ctrl-C comes while a bar is being made
    transact = diskcache.Cache._transact
    diskcache.Cache._transact = lambda cache, retry=False, filename=None: transact(cache, False, filename)


def ask_once(entries: Iterable[Any], known: Known) -> None:
    """Lets DVC look at a dependency or output only when what it found is not known: else it would list and hash a folder up to
    eight times a stage, for a thousand files 30 ms each time."""
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
