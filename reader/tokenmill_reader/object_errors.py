"""Errors of object storage in tokenmill's words, and the patience with those that pass.

The text of obstore's own errors is not shown: it holds the request's address, whose query is a credential for some storages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from socket import gethostname
from threading import Event
from typing import NamedTuple, TypeVar

from tokenmill_reader.errors import OutageError, StorageError

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long a storage elsewhere is asked again, from its first failure on."""

_PAUSE_S = (0.5, 5.0)  # the first and the longest

_STATUS = re.compile(r"status code: (\d{3})( [A-Za-z ]+)?")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_PASSING_STATUS = (408, 429)
_PASSING_WORDS = {
    "kind: Connect": "no connection could be made",
    "kind: Timeout": "no answer came in time",
    "TimedOut": "no answer came in time",
    "operation timed out": "no answer came in time",
    "kind: Interrupted": "the connection was cut",
    "IncompleteMessage": "the connection was cut",
    "ConnectionReset": "the connection was cut",
    "UnexpectedEof": "the connection was cut",
    "kind: Body": "the connection was cut",
    "kind: Decode": "the connection was cut",
    "kind: Request": "the connection was cut",
}
_NO_CREDENTIALS = re.compile(
    "/latest/api/token|/latest/meta-data|/computeMetadata/|/metadata/identity/|CredentialsError"
)


class _Lasting(NamedTuple):
    """An error that does not pass. `pattern`: a regex that finds it in "CLASS: TEXT". In `what` and `fix`, {said} is the storage's
    answer, {host} this machine, {cloud} the storage in names of environment variables. `is_of_bucket`: it names the bucket."""

    pattern: str
    what: str
    fix: str
    is_of_bucket: bool = False


_LASTING = (
    _Lasting(
        "OpenCredentials|DecodeCredentials|ReadPem",
        "the file of Google's credentials on {host} (GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_SERVICE_ACCOUNT, or gcloud's own) is "
        "missing, or is none of the kinds service_account and authorized_user, with a whole key.",
        "Name a file that Google's console or `gcloud auth application-default login` wrote.",
    ),
    _Lasting(
        "InvalidAccessKey {|MissingSasComponent",
        "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN is not written as Azure gives it.",
        "Copy it again, whole.",
    ),
    _Lasting(
        "(?s)(?=.*builder error).*http://",
        "the endpoint has no TLS, so others on the network can read the data.",
        "Name an https:// endpoint, or set {cloud}_ALLOW_HTTP=true.",
    ),
    _Lasting(
        "AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraintException|incorrectly configured region",
        "the bucket is in another region than the client.",
        "Set AWS_REGION to the bucket's region.",
    ),
    _Lasting(
        "InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|AuthenticationFailed|status code: 401",
        "the storage does not take the credentials ({said}).",
        "Correct or renew them.",
    ),
    _Lasting(
        "NoSuchBucket|ContainerNotFound|The specified bucket does not exist",
        "there is no such bucket.",
        "Correct its name, or the endpoint that the client asks.",
        is_of_bucket=True,
    ),
    _Lasting(
        "status code: 403|^PermissionDeniedError:|^UnauthenticatedError:",
        "access is denied ({said}).",
        "Use credentials that may do this.",
    ),
    _Lasting(
        "^InvalidPathError:",
        "an object below it has a name with an empty part (`//`), `.` or `..`, which the client cannot name.",
        "Rename the object, or narrow the glob to another folder.",
    ),
    _Lasting("MissingAccount", "no storage account is named.", "Set AZURE_STORAGE_ACCOUNT_NAME."),
)


def storage_error(url: str, error: Exception) -> StorageError:
    """The error to raise for one that obstore raised at a URL. What may pass is an OutageError."""
    if (lasting := lasting_error(url, error)) is not None:
        return lasting
    if isinstance(error, FileNotFoundError):
        return StorageError(url, "is not there.", "Correct the URL, or upload it again.")
    text = str(error)
    status, message = _answer(text)
    why = next((words for word, words in _PASSING_WORDS.items() if word in text), None)
    if status >= 500 or status in _PASSING_STATUS or (not status and why):
        return outage(url, message or str(why))
    return StorageError(
        url, f"the storage refuses the request ({message or type(error).__name__}).", "Check the URL and the endpoint."
    )


def outage(url: str, why: str) -> OutageError:
    """The error for a storage that does not answer now."""
    return OutageError(
        url,
        f"the storage cannot be reached now ({why}).",
        f"Check the network and, for {url.partition('/')[0]}//, the endpoint; then run the command again: what is "
        "finished is kept.",
    )


def no_ranges(url: str) -> StorageError:
    """The error for a server that sends whole files alone."""
    return StorageError(
        url, "the server does not answer requests for a range of bytes.", "Serve the dataset by one that does."
    )


def not_trusted(url: str) -> StorageError:
    """The error for a server with a certificate that this machine does not know."""
    return StorageError(
        url,
        f"the server's certificate is not trusted on {gethostname()}.",
        "Name a file with its authority's certificate in SSL_CERT_FILE.",
    )


def lasting_error(url: str, error: Exception) -> StorageError | None:
    """The error to raise for one that obstore raised at a URL, if it does not pass."""
    text, kind = str(error), type(error).__name__
    _, message = _answer(text)
    scheme = url.partition("/")[0]
    if _NO_CREDENTIALS.search(text):
        return no_credentials(url)
    if "InvalidCertificate" in text:
        return not_trusted(url)
    if kind == "NotSupportedError":
        return no_ranges(url)
    for lasting in _LASTING:
        if re.search(lasting.pattern, f"{kind}: {text}"):
            words = {
                "said": message or "no permission",
                "host": gethostname(),
                "cloud": {"gs:": "GOOGLE", "az:": "AZURE"}.get(scheme, "AWS"),
            }
            place = "/".join(url.split("/")[:3]) if lasting.is_of_bucket else url
            return StorageError(place, lasting.what.format(**words), lasting.fix.format(**words))
    return None


def _answer(text: str) -> tuple[int, str]:
    """The status of the storage's answer, 0 without one, and what it said."""
    found, code = _STATUS.search(text), _CODE.search(text)
    said = [f"{found[1]}{found[2] or ''}".strip()] if found else []
    return int(found[1]) if found else 0, ", ".join([*said, *([code[1]] if code else [])])


def no_credentials(url: str) -> StorageError:
    """The error for a place without credentials. It names this machine, which may be a worker's."""
    names = {
        "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (for a public bucket AWS_SKIP_SIGNATURE=true)",
        "gs": "GOOGLE_APPLICATION_CREDENTIALS (for a public bucket GOOGLE_SKIP_SIGNATURE=true)",
        "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (for a public one AZURE_SKIP_SIGNATURE=true)",
    }
    return StorageError(
        url,
        f"no credentials were found on {gethostname()}.",
        f"Set {names[url.partition(':')[0]]}, and run the command again.",
    )


def with_patience(
    do: Callable[[], T],
    passing: type[Exception],
    say: Callable[[str], None],
    ended: Event | None = None,
    patience_s: float = PATIENCE_S,
) -> T:
    """The result of `do()`, which is tried again as long as it raises `passing`, until `ended`. Tells `say` so once."""
    failed_s, pause_s, ended = None, _PAUSE_S[0], ended or Event()
    while True:
        try:
            return do()
        except passing as error:
            now_s = time.monotonic()
            if failed_s is None:
                failed_s = now_s
                if not ended.is_set():
                    what = str(error).partition(". ")[0]  # without what to do
                    say(f"{what}. Trying again for {patience_s:g} s.")
            if now_s - failed_s > patience_s or ended.wait(pause_s):
                raise
            pause_s = min(pause_s * 2, _PAUSE_S[1])
