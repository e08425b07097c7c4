"""The URLs of objects in object storage, and the folder of a dataset on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tokenmill_reader.errors import StorageError

SCHEMES = ("s3", "gs", "az", "hf")

_MISTYPED = re.compile(r"(s3|gs|az|hf)(:/?|//)[^/]", re.IGNORECASE)
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


class ObjectPlace(NamedTuple):
    """A place in object storage. `bucket`: for az the container; for hf `datasets/ORG/NAME`, or that with `@REV`. `key`: the path
    in the bucket, without a slash at its begin or end; it may be a prefix or a glob."""

    scheme: str
    bucket: str
    key: str

    @property
    def url(self) -> str:
        """The URL of the place."""
        return f"{self.scheme}://{self.bucket}/{self.key}"


def is_url(text: str) -> bool:
    """Whether a text is the URL of an object, a prefix or a glob in object storage, or is written like one. file:// is none.

    >>> is_url("s3://bucket/a/*.jsonl"), is_url("data/raw/**"), is_url("file:///data/a.txt")
    (True, False, False)
    """
    found = _URL.match(text)
    return found is not None and found[1].lower() != "file"


def local_path(text: str) -> str:
    """The path that a file:// URL names; any other text as it is. Raises StorageError for a file:// URL of another machine, and for
    a URL with a mistake in its first characters, such as s3//bucket.

    >>> local_path("file:///data/a%20b/*.txt"), local_path("data/a.txt")
    ('/data/a b/*.txt', 'data/a.txt')
    """
    if found := _MISTYPED.match(text):
        raise StorageError(
            text, f"expected {found[1].lower()}:// at its begin.", f"Correct it; a folder of that name is ./{text}."
        )
    if not text.lower().startswith("file://"):
        return text
    rest = text[len("file://") :]
    if not rest.startswith("/"):
        raise StorageError(text, "expected file:/// and a path from the root on this machine.", "Correct it.")
    return unquote(rest)


def dataset_folder(dataset: str) -> Path:
    """The folder of a dataset on this machine. Raises StorageError if it is the URL of one in object storage.

    >>> dataset_folder("file:///data/tokens")
    PosixPath('/data/tokens')
    """
    if is_url(dataset):
        url = place(dataset).url
        raise StorageError(
            url,
            "in object storage; expected a folder on this machine.",
            f"Run `tokenmill download {url} DIR`, and use DIR/tokens. (tokenmill.open reads a URL with cache=.)",
        )
    return Path(local_path(dataset))


def place(url: str) -> ObjectPlace:
    """The place that a URL names. Raises StorageError, without the credentials that the URL may hold.

    >>> place("s3://bucket/web/a b.jsonl.zst")
    ObjectPlace(scheme='s3', bucket='bucket', key='web/a b.jsonl.zst')
    >>> place("hf://datasets/org/name@main/data/*.parquet")
    ObjectPlace(scheme='hf', bucket='datasets/org/name@main', key='data/*.parquet')
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    first, _, key = rest.partition("/")
    if scheme not in SCHEMES:
        raise StorageError(
            f"{scheme}://",
            f"expected a URL that begins with {', '.join(f'{one}://' for one in SCHEMES)} or file://.",
            "Correct it.",
        )
    if "@" in first:
        raise StorageError(
            f"{scheme}://{first.rpartition('@')[2]}",
            "the URL holds a user or a password, which would be written to the manifest.",
            "Take it out, and put credentials into the environment or a profile.",
        )
    bucket = first
    if scheme == "hf":
        kind, organization, name, *path = [*rest.split("/", 3), "", "", ""][:4]
        bucket, key = f"{kind}/{organization}/{name}", "".join(path)
        if kind != "datasets" or not organization or not name:
            raise StorageError(url, "expected hf://datasets/ORGANIZATION/NAME/path, or NAME@REVISION.", "Correct it.")
    elif not bucket or ":" in bucket:
        raise StorageError(url, f"expected {scheme}://BUCKET/path.", "Correct it.")
    return ObjectPlace(scheme, bucket, key.strip("/"))


def shown_address(text: str) -> str:
    """The address of a server for a message: without a user, a password, a path or a query.

    >>> shown_address("http://user:word@127.0.0.1:9000/x?sig=1")
    'http://127.0.0.1:9000'
    """
    parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
