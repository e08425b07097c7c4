"""Files of datasets on a Hugging Face hub: hf://datasets/ORGANIZATION/NAME@REVISION/path. They are read as objects, and written in
commits.

The hub's address and token come from the environment, as for all of huggingface_hub: HF_ENDPOINT, HF_TOKEN. A revision is looked
up once, and all files are read from that commit.
"""

import hashlib
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tokenmill.errors import CorpusError, PassingError, StorageError, TokenmillError
from tokenmill.storage.object_errors import gone
from tokenmill.storage.retries import with_patience
from tokenmill.storage.urls import StoredObject, bounded_listing
from tokenmill_reader.regular_files import READ_BYTES_MAX, words_of_large
from tokenmill_reader.urls import place

_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
_MEANWHILE_STATUS = (409, 412)
_NOTHING_IGNORED = "# nothing\n"  # else a .gitignore of the dataset would leave files out in silence
_N_RETRIES = 2
_N_SENT_AT_ONCE = 16


def list_objects(prefix: str) -> list[StoredObject]:
    """The files below a folder of a dataset, at any depth. Raises StorageError and PassingError."""
    where, hub = place(prefix), _hub(prefix)
    name, revision = _repository(where.bucket)
    try:
        api, commit = _at(hub, name, revision)
        found = api.list_repo_tree(name, where.key or None, recursive=True, revision=commit, repo_type="dataset")
        files = [entry for entry in bounded_listing(prefix, found) if isinstance(entry, hub.hf_api.RepoFile)]
    except hub.errors.EntryNotFoundError:
        return []
    except _errors(hub) as error:
        raise _told(prefix, error) from None
    return [
        StoredObject(
            f"hf://{where.bucket}/{file.path}", file.size, file.lfs.sha256 if file.lfs else file.blob_id, 0, commit
        )
        for file in files
    ]


def get(url: str) -> bytes:
    """The bytes of a small file. Raises CorpusError if there is none, StorageError and PassingError."""
    where, hub = place(url), _hub(url)
    name, revision = _repository(where.bucket)
    try:
        api, commit = _at(hub, name, revision)
        content = _content_at(api, commit, url)
    except _errors(hub) as error:
        raise _told(url, error) from None
    if content is None:
        raise gone(url)
    return content


def _content_at(api: Any, commit: str, url: str) -> bytes | None:
    where = place(url)
    infos = api.get_paths_info(_repository(where.bucket)[0], [where.key], revision=commit, repo_type="dataset")
    if not infos:
        return None
    n_bytes = infos[0].size
    if n_bytes > READ_BYTES_MAX:
        raise CorpusError(url, f"cannot be read: {words_of_large(n_bytes)}.", "Delete it if it is not yours.")
    return bytes(get_range(StoredObject(url, n_bytes, version=commit), 0, n_bytes)) if n_bytes else b""


def is_same(stored: StoredObject, content: Path | bytes, sha256: str) -> bool:
    """Whether a listed file has this content, whose digest is `sha256`. A hub keeps that of a large file, and git's own digest of
    another."""
    if stored.e_tag == sha256:
        return True
    if isinstance(content, Path) and not content.is_file():
        return False
    n_bytes = content.stat().st_size if isinstance(content, Path) else len(content)
    if stored.n_bytes != n_bytes:
        return False
    digest = hashlib.sha1(b"blob %d\0" % n_bytes, usedforsecurity=False)
    with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return stored.e_tag == digest.hexdigest()


def commit_files(
    folder: str,
    files: Mapping[str, Path | bytes],
    message: str,
    refuse_other: Callable[[str, bytes], None],
    on_sent: Callable[[int], None],
) -> None:
    """Writes files, by their names, to a folder of a dataset in one commit. What fails for a moment is tried again for a minute.

    `refuse_other`: called with the name and content of each file that is bytes here and that the commit before has; raises an error
    if it must not be replaced. `on_sent`: called with the bytes of each few files when the hub has them. It keeps those of large
    files also if the commit fails. Raises StorageError and PassingError.
    """
    where, hub = place(folder), _hub(folder)
    name, revision = _repository(where.bucket)
    additions = [
        hub.CommitOperationAdd(f"{where.key}/{file}", content if isinstance(content, bytes) else str(content))
        for file, content in files.items()
    ]

    def send(few: Sequence[Any]) -> None:
        with _told_of(folder, hub), _without_bars(hub):
            hub.HfApi().preupload_lfs_files(
                name, few, repo_type="dataset", revision=revision, gitignore_content=_NOTHING_IGNORED
            )

    def commit() -> None:
        with _told_of(folder, hub), _without_bars(hub):
            api, before = _at(hub, name, revision)
            for file, content in files.items():
                if isinstance(content, bytes) and (there := _content_at(api, before, f"{folder}/{file}")) is not None:
                    refuse_other(file, there)
            api.create_commit(
                name,
                additions,
                commit_message=message,
                repo_type="dataset",
                revision=revision,
                parent_commit=before,
            )

    for start in range(0, len(additions), _N_SENT_AT_ONCE):
        few = additions[start : start + _N_SENT_AT_ONCE]
        with_patience(partial(send, few))
        on_sent(sum(one.upload_info.size for one in few))
    with_patience(commit)


@contextmanager
def _told_of(folder: str, hub: Any) -> Iterator[None]:
    """Turns the errors of huggingface_hub into this module's."""
    try:
        yield
    except _errors(hub) as error:
        raise _told(folder, error) from None
    except (RuntimeError, ValueError) as error:  # one file of several
        if isinstance(error.__cause__, _errors(hub)):
            raise _told(folder, error.__cause__) from None
        raise StorageError(folder, f"the hub did not take a file: {error}.", "Try again.") from None


@contextmanager
def _without_bars(hub: Any) -> Iterator[None]:
    """Lets huggingface_hub draw no bars of progress beside ours."""
    were_off = hub.utils.are_progress_bars_disabled()
    hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        if not were_off:
            hub.utils.enable_progress_bars()


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


def _at(hub: Any, name: str, revision: str | None) -> tuple[Any, str]:
    """The hub's client, and the present commit of a revision."""
    api = hub.HfApi()
    return api, api.dataset_info(name, revision=revision, expand=["sha"]).sha


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
    if status in _MEANWHILE_STATUS:
        return PassingError(url, "somebody else commits to the dataset at the same time.", "Try again.")
    if status is None or status in _PASSING_STATUS:
        why = kind if status is None else f"status {status}"
        return PassingError(
            url, f"the hub cannot be reached now ({why}).", "Check the network and HF_ENDPOINT, and try again."
        )
    said = getattr(error, "server_message", None) or f"status {status}"
    return StorageError(url, f"the hub refuses the request ({said:.300}).", "Check the URL and HF_ENDPOINT.")
