"""DVC's way with local files: it passes over a folder that it cannot list, and waits for ever at a FIFO or a full disk."""

import os
from functools import cache, partial
from types import SimpleNamespace

from tokenmill.files import open_regular, raise_it


@cache
def make_strict() -> None:
    """Lets DVC raise OSError for a folder that it cannot list, as it would otherwise record what is in it as not there, and
    for what is opened for reading and is no file; and diskcache.Timeout when its databases cannot be written to, which it
    would otherwise try for ever, whatever the reason."""
    import diskcache  # type: ignore[import-untyped]
    from dvc.progress import Tqdm
    from dvc_objects.fs import local

    def opened(path: str, mode: str = "r", encoding: str | None = None) -> object:
        return open(path, mode, encoding=encoding, opener=open_regular if "r" in mode else None)

    local.os = SimpleNamespace(**{**vars(os), "walk": partial(os.walk, onerror=raise_it)})  # type: ignore[assignment, attr-defined]
    local.open = opened  # type: ignore[attr-defined]
    Tqdm.postfix = {}  # it is asked for when Ctrl-C comes while a bar is being made
    transact = diskcache.Cache._transact
    diskcache.Cache._transact = lambda cache, retry=False, filename=None: transact(cache, False, filename)
