"""The monkeypatches of DVC and its libraries, in one table. A `with` block applies them and undoes them afterwards."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, NamedTuple


class Patch(NamedTuple):
    """A changed attribute of a class. `make` gives the new value from the old one, which is None if there was none."""

    module: str
    owner: str
    attribute: str
    make: Callable[[Any], Any]
    why: str
    tried_with: str


def _without_retries(transact: Any) -> Any:
    return lambda cache, retry=False, filename=None: transact(cache, False, filename)


PATCHES = (
    Patch(
        "diskcache",
        "Cache",
        "_transact",
        _without_retries,
        "DVC's databases try a write that fails again for ever, whatever the reason, for example a full disk. With the patch "
        "diskcache.Timeout is raised.",
        "DVC 3.67.1, dvc-data 3.18.3, diskcache 5.6.3",
    ),
    Patch(
        "dvc.progress",
        "Tqdm",
        "postfix",
        lambda _: {},
        "When Ctrl-C comes while a progress bar is being made, closing it asks for an attribute that it does not have yet, and "
        "a traceback is printed. With the patch the class has it.",
        "DVC 3.67.1",
    ),
)


@contextmanager
def patched() -> Iterator[None]:
    """Applies the monkeypatches for the whole process until the block ends. Blocks may be nested."""
    with ExitStack() as undo:
        for patch in PATCHES:
            owner = getattr(import_module(patch.module), patch.owner)
            if patch.attribute in vars(owner):
                before = vars(owner)[patch.attribute]
                undo.callback(setattr, owner, patch.attribute, before)
            else:
                before = None
                undo.callback(delattr, owner, patch.attribute)
            setattr(owner, patch.attribute, patch.make(before))
        yield
