"""Files of datasets on a Hugging Face hub, as objects: hf://datasets/ORGANIZATION/NAME@REVISION/path.

The hub's address and token come from the environment, as for all of huggingface_hub: HF_ENDPOINT, HF_TOKEN. A revision is looked
up once, and all files are read from that commit.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenmill.errors import PassingError, StorageError, TokenmillError
from tokenmill.storage.object_errors import gone
from tokenmill.storage.urls import StoredObject, bounded_listing
from tokenmill_reader.regular_files import READ_BYTES_MAX, words_of_large
from tokenmill_reader.urls import place

_PASSING_STATUS = (408, 409, 412, 429, 500, 502, 503, 504)  # 409, 412: somebody else has committed meanwhile
_N_RETRIES = 2
_N_SENT_AT_ONCE = 16


def list_objects(prefix: str) -> list[StoredObject]:
    """The files below a folder of a dataset, at any depth. Raises StorageError and PassingError."""
    where = place(prefix)
    name, revision = _repository(where.bucket)
    hub = _hub(prefix)
    try:
        api = hub.HfApi()
        commit = api.dataset_info(name, revision=revision, expand=["sha"]).sha
        found = api.list_repo_tree(name, where.key or None, recursive=True, revision=commit, repo_type="dataset")
        files = [entry for entry in bounded_listing(prefix, found) if isinstance(entry, hub.hf_api.RepoFile)]
    except hub.errors.EntryNotFoundError:
        return []
    except _errors(hub) as error:
        raise _told(prefix, error) from None
    return [
        StoredObject(f"hf://{where.bucket}/{one.path}", one.size, one.lfs.sha256 if one.lfs else one.blob_id, 0, commit)
        for one in files
    ]


def get(url: str) -> bytes:
    """The bytes of a small file. Raises CorpusError if there is none, StorageError and PassingError."""
    folder, _, _ = url.rpartition("/")
    for one in list_objects(folder):
        if one.url == url:
            if one.n_bytes > READ_BYTES_MAX:
                raise StorageError(
                    url, f"cannot be read: {words_of_large(one.n_bytes)}.", "Delete it if it is not yours."
                )
            return bytes(get_range(one, 0, one.n_bytes)) if one.n_bytes else b""
    raise gone(url)


def is_same(stored: StoredObject, path: Path, sha256: str) -> bool:
    """Whether a listed file has the bytes of a local one, whose digest is `sha256`. A hub keeps that of a large file, and git's own
    digest of another."""
    if stored.e_tag == sha256:
        return True
    n_bytes = path.stat().st_size if path.is_file() else -1
    if stored.n_bytes != n_bytes:
        return False
    git = hashlib.sha1(b"blob %d\0" % n_bytes, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            git.update(block)
    return stored.e_tag == git.hexdigest()


def commit_files(
    folder: str, files: Mapping[str, Path | bytes], message: str, on_sent: Callable[[int], None] = lambda _: None
) -> None:
    """Writes files, by their names, to a folder of a dataset in one commit. `on_sent`: called with the bytes of some of them when a
    hub has those. Raises StorageError, and PassingError, also if somebody else commits anything meanwhile."""
    where = place(folder)
    name, revision = _repository(where.bucket)
    hub = _hub(folder)
    try:
        api = hub.HfApi()
        commit = api.dataset_info(name, revision=revision, expand=["sha"]).sha
        added = [
            hub.CommitOperationAdd(f"{where.key}/{file}", content if isinstance(content, bytes) else os.fspath(content))
            for file, content in files.items()
        ]
        hub.utils.disable_progress_bars()
        for start in range(0, len(added), _N_SENT_AT_ONCE):
            some = added[start : start + _N_SENT_AT_ONCE]
            api.preupload_lfs_files(name, some, repo_type="dataset", revision=revision)
            on_sent(sum(one.upload_info.size for one in some))
        api.create_commit(
            name, added, commit_message=message, repo_type="dataset", revision=revision, parent_commit=commit
        )
    except _errors(hub) as error:
        raise _told(folder, error) from None
    except (RuntimeError, ValueError) as error:  # one file of several
        cause = error.__cause__
        if isinstance(cause, _errors(hub)):
            raise _told(folder, cause) from None
        raise StorageError(folder, f"the hub did not take a file: {error}.", "Try again.") from None


def get_range(stored: StoredObject, start: int, stop: int) -> memoryview:
    """The bytes of a file from `start` up to but without `stop`, in the commit in which it was listed. Raises CorpusError for a
    file that is not there any more, StorageError and PassingError."""
    where = place(stored.url)
    name, _ = _repository(where.bucket)
    hub = _hub(stored.url)
    address = hub.hf_hub_url(name, where.key, repo_type="dataset", revision=stored.version)
    headers = {**hub.utils.build_hf_headers(), "Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
    try:
        with hub.utils.http_stream_backoff(
            "GET", address, headers=headers, max_retries=_N_RETRIES, timeout=20.0, follow_redirects=True
        ) as answer:
            hub.utils.hf_raise_for_status(answer)
            if answer.status_code == 200 and stop - start < stored.n_bytes:
                raise StorageError(
                    stored.url, "the hub sends whole files alone, not parts of them.", "Download the file."
                )
            content = bytearray()
            for block in answer.iter_bytes():
                content += block
                if len(content) > stop - start:
                    raise StorageError(
                        stored.url,
                        f"the hub sends more than the {stop - start:,} bytes that were asked for.",
                        "Check HF_ENDPOINT.",
                    )
    except hub.errors.EntryNotFoundError:
        raise gone(stored.url) from None
    except _errors(hub) as error:
        raise _told(stored.url, error) from None
    if len(content) != stop - start:
        raise PassingError(
            stored.url, f"the hub sent {len(content):,} bytes in place of {stop - start:,}.", "Try again."
        )
    return memoryview(content)


def _repository(bucket: str) -> tuple[str, str | None]:
    name, _, revision = bucket.removeprefix("datasets/").partition("@")
    return name, revision or None


def _hub(url: str) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.hf_api
        import huggingface_hub.utils
    except ModuleNotFoundError:
        raise StorageError(
            url, "huggingface_hub, which reads and writes hf://, is not installed.", "Run `pip install tokenmill[hf]`."
        ) from None
    return huggingface_hub


def _errors(hub: Any) -> tuple[type[Exception], ...]:
    """The errors that huggingface_hub's calls raise: its own, and those of the HTTP library that this version uses."""
    http = sys.modules[type(hub.utils.get_session()).__module__.partition(".")[0]]
    return hub.errors.HfHubHTTPError, hub.errors.OfflineModeIsEnabled, hub.errors.HFValidationError, http.HTTPError


def _told(url: str, error: Exception) -> TokenmillError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    kind = type(error).__name__
    if kind == "OfflineModeIsEnabled":
        return StorageError(url, "HF_HUB_OFFLINE is set, so the hub is not asked.", "Unset it.")
    if kind == "RevisionNotFoundError":
        return StorageError(url, "the dataset has no such revision.", "Correct what stands behind @.")
    if kind in ("RepositoryNotFoundError", "GatedRepoError", "HFValidationError") or status in (401, 403):
        return StorageError(
            url,
            "there is no such dataset, or the token may not do this with it.",
            "Correct the name, create the dataset on the hub, or set HF_TOKEN to the token of a user who has access to it.",
        )
    if status is None or status in _PASSING_STATUS:
        why = kind if status is None else f"status {status}"
        return PassingError(
            url, f"the hub cannot be reached now ({why}).", "Check the network and HF_ENDPOINT, and try again."
        )
    return StorageError(url, f"the hub refuses the request (status {status}).", "Check the URL and HF_ENDPOINT.")
