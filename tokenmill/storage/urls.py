"""The URLs of objects in object storage, without credentials."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from tokenmill.errors import ParamsError, StorageError
from tokenmill_reader.shown import without_passwords

N_LISTED_MAX = 1_000_000
"""How many objects are listed below one folder, some 500 MB. A server can go on forever."""
_Listed = TypeVar("_Listed")


class StoredObject(msgspec.Struct, frozen=True):
    """An object as listed. `e_tag`: the storage's tag of its content, None without one. `modified_ns`: nanoseconds since 1970.
    `version`: its version, if the storage keeps versions; for hf the commit to read."""

    url: str
    n_bytes: int
    e_tag: str | None = None
    modified_ns: int = 0
    version: str | None = None

    def __str__(self) -> str:
        return self.url


def bounded_listing(folder: str, listed: Iterable[_Listed]) -> Iterator[_Listed]:
    """The entries of a listing. Raises StorageError at the first one over N_LISTED_MAX."""
    for n_before, entry in enumerate(listed):
        if n_before == N_LISTED_MAX:
            raise StorageError(
                folder,
                f"has more than {N_LISTED_MAX:,} files below it.",
                "Name a folder further down, with the files of documents alone.",
            )
        yield entry


def refuse_password(where: str, text: str) -> None:
    """Raises ParamsError if a text holds a URL with a password, with a user who may be a token, or with a query."""
    if without_passwords(text) != text:
        raise ParamsError(
            where,
            "the URL has a password, a token or a query, which would be written to files and logs that others read.",
            "Take it out. git takes it from a credential helper or uses an ssh key, DVC takes it from "
            ".dvc/config.local or the environment, and object storage from the environment or a profile.",
        )
