"""Files of datasets on a Hugging Face hub, as objects: hf://datasets/ORGANIZATION/NAME@REVISION/path.

The hub's address and token come from the environment, as for all of huggingface_hub: HF_ENDPOINT, HF_TOKEN. A revision is looked
up once, and all files are read from that commit.
"""

import sys
from typing import Any

from tokenmill.errors import PassingError, StorageError, TokenmillError
from tokenmill.storage.object_errors import gone
from tokenmill.storage.urls import StoredObject, bounded_listing
from tokenmill_reader.urls import place

_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
_N_RETRIES = 2


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
            url, "huggingface_hub, which reads hf://, is not installed.", "Run `pip install tokenmill[hf]`."
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
            "there is no such dataset, or the token may not read it.",
            "Correct the name, or set HF_TOKEN to the token of a user who has access to it.",
        )
    if status is None or status in _PASSING_STATUS:
        why = kind if status is None else f"status {status}"
        return PassingError(
            url, f"the hub cannot be reached now ({why}).", "Check the network and HF_ENDPOINT, and try again."
        )
    return StorageError(url, f"the hub refuses the request (status {status}).", "Check the URL and HF_ENDPOINT.")
