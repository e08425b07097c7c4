"""The monkeypatches of DVC and its libraries. A `with` block applies them and undoes them afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenmill.versioning import dvc_view


@contextmanager
def patched() -> Iterator[None]:
    """Applies the monkeypatches for the whole process until the block ends. Blocks may be nested."""
    from unittest.mock import patch

    from diskcache import Cache  # type: ignore[import-untyped]
    from dvc.ignore import DvcIgnoreFilter
    from dvc.progress import Tqdm

    transact = Cache._transact

    def without_retries(cache: Any, retry: bool = False, filename: Any = None) -> Any:
        return transact(cache, False, filename)

    walk = DvcIgnoreFilter.walk

    def walk_seen(ignore: Any, *args: Any, **named: Any) -> Iterator[Any]:
        for one in walk(ignore, *args, **named):
            yield dvc_view.walk_seen(*one)

    with (
        # DVC's databases try a write that fails again for ever, whatever the reason, for example a full disk. With the patch
        # diskcache.Timeout is raised. Tried with DVC 3.67.1, dvc-data 3.18.3 and diskcache 5.6.3.
        patch.object(Cache, "_transact", without_retries),
        # When Ctrl-C comes while a progress bar is being made, closing it asks for an attribute that it does not have yet, and a
        # traceback is printed. With the patch the class has it. Tried with DVC 3.67.1.
        patch.object(Tqdm, "postfix", {}, create=True),
        # DVC hashes a folder as a whole. With the patch it leaves out what came after a build began. Tried with DVC 3.67.1.
        patch.object(DvcIgnoreFilter, "walk", walk_seen),
    ):
        yield
