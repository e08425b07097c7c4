"""Errors of object storage in tokenmill's words.

The text of obstore's own errors is not shown: it holds the request's address, whose query is a credential for some storages.
"""

import re
from socket import gethostname

from tokenmill.errors import CorpusError, PassingError, StorageError, TokenmillError

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
_OF_CREDENTIALS = (
    "/latest/api/token",
    "/latest/meta-data",
    "/computeMetadata/",
    "/metadata/identity/",
    "CredentialsError",
)
_OF_GOOGLE_FILE = ("OpenCredentials", "DecodeCredentials", "ReadPem")
_OF_AZURE_KEY = ("InvalidAccessKey {", "MissingSasComponent")
_OF_REGION = (
    "AuthorizationHeaderMalformed",
    "PermanentRedirect",
    "IllegalLocationConstraintException",
    "incorrectly configured region",
)
_OF_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AuthenticationFailed")


def storage_error(url: str, error: Exception) -> TokenmillError:
    """The error to raise for one that obstore raised at a URL. What may pass is a PassingError."""
    text = str(error)
    found, code = _STATUS.search(text), _CODE.search(text)
    status = int(found[1]) if found else 0
    said = f"{found[1]}{found[2] or ''}".strip() if found else ""
    said = ", ".join(word for word in (said, code[1] if code else "") if word)
    scheme, bucket = url.partition("/")[0], "/".join(url.split("/")[:3])
    if any(word in text for word in _OF_CREDENTIALS):
        return no_credentials(url)
    if any(word in text for word in _OF_GOOGLE_FILE):
        return StorageError(
            url,
            f"the file of Google's credentials on {gethostname()} (GOOGLE_APPLICATION_CREDENTIALS, "
            "GOOGLE_SERVICE_ACCOUNT, or gcloud's own) is missing, or is none of the kinds service_account and "
            "authorized_user, with a whole key.",
            "Name a file that Google's console or `gcloud auth application-default login` wrote.",
        )
    if any(word in text for word in _OF_AZURE_KEY):
        return StorageError(
            url,
            "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN is not written as Azure gives it.",
            "Copy it again, whole.",
        )
    if "builder error" in text and "http://" in text:
        variable = {"gs:": "GOOGLE", "az:": "AZURE"}.get(scheme, "AWS")
        return StorageError(
            url,
            "the endpoint has no TLS, so others on the network can read the data.",
            f"Name an https:// endpoint, or set {variable}_ALLOW_HTTP=true.",
        )
    if any(word in text for word in _OF_REGION):
        return StorageError(
            url, "the bucket is in another region than the client.", "Set AWS_REGION to the bucket's region."
        )
    if any(word in text for word in _OF_KEYS) or status == 401:
        return StorageError(url, f"the storage does not take the credentials ({said}).", "Correct or renew them.")
    if "NoSuchBucket" in text or "ContainerNotFound" in text or "The specified bucket does not exist" in text:
        return StorageError(
            bucket, "there is no such bucket.", "Correct its name, or the endpoint that the client asks."
        )
    if status == 403 or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return StorageError(url, f"access is denied ({said or 'no permission'}).", "Use credentials that may do this.")
    if type(error).__name__ == "InvalidPathError":
        return StorageError(
            url,
            "an object below it has a name with an empty part (`//`), `.` or `..`, which the client cannot name.",
            "Rename the object, or narrow the glob to another folder.",
        )
    if isinstance(error, FileNotFoundError):
        return gone(url)
    if type(error).__name__ == "PreconditionError":
        return changed(url)
    if "MissingAccount" in text:
        return StorageError(url, "no storage account is named.", "Set AZURE_STORAGE_ACCOUNT_NAME.")
    why = next((words for word, words in _PASSING_WORDS.items() if word in text), None)
    if status >= 500 or status in _PASSING_STATUS or (not status and why):
        return PassingError(
            url,
            f"the storage cannot be reached now ({said or why}).",
            f"Check the network and, for {scheme}//, the endpoint; then run the command again: what is finished is "
            "kept.",
        )
    return StorageError(
        url, f"the storage refuses the request ({said or type(error).__name__}).", "Check the URL and the endpoint."
    )


def gone(url: str) -> CorpusError:
    """The error for an object that is not there any more."""
    return CorpusError(
        url, "is not there any more: it was deleted after it was listed.", "Run the command again.", code="TM207"
    )


def changed(url: str) -> CorpusError:
    """The error for an object that is not the one that was listed."""
    return CorpusError(
        url, "changed after it was listed.", "Run the command again when nothing writes to it any more.", code="TM207"
    )


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
