"""The URLs of objects in object storage, and the place of a dataset: its folder on this machine, or its URL."""

from __future__ import annotations

import os
import re
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple, Optional
from urllib.parse import unquote

from tokenmill_reader.errors import ParamsError, StorageError
from tokenmill_reader.object_errors import PATIENCE_S

SCHEMES = ("s3", "gs", "az", "hf")

TOKENS = "tokens"
"""The folder of an uploaded dataset that training jobs read."""

N_DIGITS = 16
"""An uploaded dataset is in a folder with the name of so many digits of its manifest's digest."""

_WEB = re.compile(r"(https?)://([^/]+)/(.+)")
_ON_THIS_MACHINE = re.compile(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?")
_DIGEST = re.compile(rf"[0-9a-f]{{{N_DIGITS}}}")
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
    """The folder of a dataset, or of its upload, on this machine. Raises StorageError if it is the URL of one in object storage."""
    if is_url(dataset):
        url = place(dataset).url
        raise StorageError(
            url,
            "in object storage; expected a folder on this machine.",
            f"Run `tokenmill download {url} DIR`, and use DIR/tokens. (tokenmill.open reads a URL with cache=.)",
        )
    folder = Path(local_path(dataset))
    of_upload = folder / "tokens"
    return of_upload if (of_upload / "manifest.json").exists() else folder


def place(url: str) -> ObjectPlace:
    """The place that a URL names. Raises StorageError, without the credentials that the URL may hold.

    >>> place("s3://bucket/web/a b.jsonl.zst")
    ObjectPlace(scheme='s3', bucket='bucket', key='web/a b.jsonl.zst')
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
            url,
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


_CACHE_BYTES = 100_000_000_000  # of the default folder


class RemoteDataset(NamedTuple):
    """A dataset that `tokenmill upload` wrote. `url`: PLACE/DIGEST. `folder`: keeps its files on this machine. `cache_bytes`: the
    most bytes of them at a time; None: no limit. `patience_s`: how long an outage is borne."""

    url: str
    folder: Path
    cache_bytes: Optional[int]
    patience_s: float


def remote_dataset(
    dataset: str, cache: str | PathLike[str] | None, cache_bytes: int | None, patience_s: float = PATIENCE_S
) -> RemoteDataset | None:
    """The dataset of a URL; None for a folder. Raises ParamsError if `cache` is given for a folder, and StorageError for another
    URL."""
    is_remote = is_url(dataset) or (cache is not None and dataset.lower().startswith("file://"))
    if not is_remote:
        if cache is not None or cache_bytes is not None:
            raise ParamsError(
                "cache",
                f"expected the URL of an uploaded dataset; found the folder {dataset}.",
                "Leave cache out, or name file:///… for a folder on a slow disk.",
            )
        return None
    url = dataset.rstrip("/")
    if url.lower().startswith("file://"):
        url = f"file://{local_path(url)}"  # the names of files are added to it as they are
    digest = url.rpartition("/")[2]
    object_place(url)
    if not _DIGEST.fullmatch(digest):
        raise StorageError(
            url,
            f"expected PLACE/DIGEST, with {N_DIGITS} digits as `tokenmill upload` prints them; found {digest!r} at its "
            "end.",
            "Upload the dataset, or download it and open its folder.",
        )
    if os.name == "nt":
        raise StorageError(url, "a dataset is read where it lies on Linux and macOS only.", "Download it.")
    if cache_bytes is not None and cache_bytes < 1:
        raise ParamsError("cache_bytes", f"expected a number of bytes, or None for no limit; found {cache_bytes}.")
    if cache is None:
        cache, cache_bytes = default_cache(), cache_bytes or _CACHE_BYTES
    return RemoteDataset(url, Path(fspath(cache)).absolute() / digest, cache_bytes, patience_s)


def default_cache() -> Path:
    """The folder for remote datasets that are opened without one."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tokenmill/datasets")


def object_place(url: str) -> ObjectPlace:
    """The place of an object by its URL, also of https, and of file with a path that is not quoted. Raises StorageError for another
    scheme, and for http to another machine."""
    if url.lower().startswith("file:///"):
        return ObjectPlace("file", "", url[len("file:///") :].rstrip("/"))
    web = _WEB.fullmatch(url)
    if web is None:
        parsed = place(url)
        if parsed.scheme == "hf":
            raise StorageError(
                url, "a dataset of Hugging Face's hub is not read where it lies.", "Download it and open its folder."
            )
        return parsed
    if "@" in web[2]:
        raise StorageError(url, "the URL holds a password.", "Take it out.")
    if web[1] == "http" and not _ON_THIS_MACHINE.fullmatch(web[2]):
        raise StorageError(url, "has no TLS, so others on the network can read the data.", "Name an https:// URL.")
    return ObjectPlace(web[1], web[2], web[3].rstrip("/"))
