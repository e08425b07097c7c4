"""The monkeypatches of DVC and its libraries. A `with` block applies them and undoes them afterwards."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from typing import Any

from tokenmill.errors import VersionsError
from tokenmill.versioning import dvc_view
from tokenmill_reader.shown import without_passwords

LIST = "the list of a folder's files in DVC's cache or remote"
ADVICE = (
    "Somebody changed it, and nothing of it was written. Do not use it; publish the version again where it was built."
)


@contextmanager
def patched() -> Iterator[None]:
    """Applies the monkeypatches for the whole process until the block ends. Blocks may be nested."""
    from unittest.mock import patch

    from diskcache import Cache  # type: ignore[import-untyped]
    from dvc import rwlock
    from dvc.ignore import DvcIgnoreFilter
    from dvc.progress import Tqdm
    from dvc_data.hashfile.tree import Tree
    from ruamel.yaml import YAML

    from tokenmill.config import bounded_yaml

    transact = Cache._transact

    def without_retries(cache: Any, retry: bool = False, filename: Any = None) -> Any:
        return transact(cache, False, filename)

    load_yaml = YAML.load

    def load_bounded(yaml: Any, text: Any) -> Any:
        if not isinstance(text, str):  # other libraries pass open files; DVC passes texts
            return load_yaml(yaml, text)
        if yaml.typ == ["safe"]:
            return deepcopy(_read_safe(text, load_yaml))
        bounded_yaml.check(text, bounded_yaml.DVC_CHARACTERS_MAX)
        return load_yaml(yaml, text)

    load_tree = Tree.load

    def load_checked(_kind: Any, *args: Any, **named: Any) -> Any:
        return _checked(load_tree, *args, **named)

    walk = DvcIgnoreFilter.walk

    def walk_seen(ignore: Any, *args: Any, **named: Any) -> Iterator[Any]:
        for one in walk(ignore, *args, **named):
            yield dvc_view.walk_seen(*one)

    lock = rwlock.rwlock

    def lock_without_passwords(tmp_dir: Any, fs: Any, command: str, *args: Any) -> Any:
        return lock(tmp_dir, fs, without_passwords(command), *args)

    with (
        # DVC's databases retry a failed write for ever, for example on a full disk. With the patch
        # diskcache.Timeout is raised. Tried with DVC 3.67.1, dvc-data 3.18.3 and diskcache 5.6.3.
        patch.object(Cache, "_transact", without_retries),
        # When Ctrl-C comes while a progress bar is being made, closing it asks for an attribute that it does not have yet, and a
        # traceback is printed. With the patch the class has it. Tried with DVC 3.67.1.
        patch.object(Tqdm, "postfix", {}, create=True),
        # DVC reads dvc.yaml and other files without bounds. 100,000 levels crash its reader, and aliases of aliases hang
        # it. Tried with DVC 3.67.1 and ruamel.yaml 0.19.1.
        patch.object(YAML, "load", load_bounded),
        # DVC accepts any names in a cached or remote list of a folder's files. Tried with dvc-data 3.18.3.
        patch.object(Tree, "load", classmethod(load_checked)),
        # DVC hashes whole folders. With the patch it skips files that arrived after a build began. Tried with DVC 3.67.1.
        patch.object(DvcIgnoreFilter, "walk", walk_seen),
        # DVC writes the arguments of the process, which may have a URL with a password, into a file. Tried with DVC 3.67.1.
        patch.object(rwlock, "rwlock", lock_without_passwords),
    ):
        yield


@lru_cache(maxsize=16)  # one build reads dvc.yaml, dvc.lock and params.yaml 30 times
def _read_safe(text: str, load_yaml: Callable[[Any, str], Any]) -> Any:
    """The values of a YAML document within the bounds. Callers copy them."""
    from ruamel.yaml import YAML

    from tokenmill.config import bounded_yaml

    bounded_yaml.check(text, bounded_yaml.DVC_CHARACTERS_MAX)
    return load_yaml(YAML(typ="safe"), text)


def _checked(load: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """The list of a folder's files that `load` reads. Raises VersionsError if it is malformed, or a name leads out of the
    folder."""
    try:
        tree = load(*args, **named)
    except (RecursionError, AttributeError, KeyError, TypeError) as error:
        raise VersionsError(LIST, f"is malformed: {error!r:.100}.", ADVICE) from None
    refuse_names((names for names, _meta, _hash in tree), tree.oid)
    return tree


def refuse_names(listed: Iterable[Sequence[str]], oid: str) -> None:
    """Raises VersionsError for a name that leads out of its folder, or into a repository of git, whose settings run commands, in
    the list `oid` of a folder's files. `listed`: the parts of each name."""
    for names in listed:
        if not all(names) or {".", "..", ".git"} & {name.casefold() for name in names} or "\0" in "".join(names):
            raise VersionsError(
                f"{LIST}, {oid}",
                f"found the name {'/'.join(names)!r:.200}, expected one inside the folder.",
                ADVICE,
            )
