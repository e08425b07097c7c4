"""The place of a dataset that is read where it lies: its URL, and the folder that keeps its files on this machine."""

from __future__ import annotations

import os
import re
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple, Optional

from tokenmill_reader.errors import ParamsError, StorageError
from tokenmill_reader.patience import PATIENCE_S
from tokenmill_reader.urls import ObjectPlace, is_url, place

TOKENS = "tokens"
"""The folder of an uploaded dataset that training jobs read."""

N_DIGITS = 16
"""An uploaded dataset is in a folder with the name of so many digits of its manifest's digest."""

_WEB = re.compile(r"(https?)://([^/]+)/(.+)")
_ON_THIS_MACHINE = re.compile(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?")
_DIGEST = re.compile(rf"[0-9a-f]{{{N_DIGITS}}}")


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
    """The dataset of a URL; None for a folder on this machine. Raises ParamsError if `cache` is missing, or is given for a folder,
    and StorageError for a URL that is none of an uploaded dataset."""
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
    digest = url.rpartition("/")[2]
    object_place(url)
    if not _DIGEST.fullmatch(digest):
        raise StorageError(
            url,
            f"expected PLACE/DIGEST, with {N_DIGITS} digits as `tokenmill upload` prints them; found {digest!r} at its "
            "end.",
            "Upload the dataset, or download it and open its folder.",
        )
    if cache is None:
        raise ParamsError(
            "cache",
            f"expected a folder on this machine that keeps files of {url}; found none.",
            f"Name one on a fast disk, as in tokenmill.open({url!r}, cache='/scratch/tokens').",
        )
    if os.name == "nt":
        raise StorageError(url, "a dataset is read where it lies on Linux and macOS only.", "Download it.")
    if cache_bytes is not None and cache_bytes < 1:
        raise ParamsError("cache_bytes", f"expected a number of bytes, or None for no limit; found {cache_bytes}.")
    return RemoteDataset(url, Path(fspath(cache)).absolute() / digest, cache_bytes, patience_s)


def object_place(url: str) -> ObjectPlace:
    """The place of an object by its URL, also of https and file. Raises StorageError for another scheme, and for http to another
    machine."""
    if url.lower().startswith("file:///"):
        return ObjectPlace("file", "", url[len("file:///") :].rstrip("/"))
    web = _WEB.fullmatch(url)
    if web is None:
        found = place(url)
        if found.scheme == "hf":
            raise StorageError(
                url, "a dataset of Hugging Face's hub is not read where it lies.", "Download it and open its folder."
            )
        return found
    if "@" in web[2]:
        raise StorageError(f"{web[1]}://{web[2].rpartition('@')[2]}", "the URL holds a password.", "Take it out.")
    if web[1] == "http" and not _ON_THIS_MACHINE.fullmatch(web[2]):
        raise StorageError(url, "has no TLS, so others on the network can read the data.", "Name an https:// URL.")
    return ObjectPlace(web[1], web[2], web[3].rstrip("/"))
