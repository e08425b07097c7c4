"""Errors of object storage as those of reading documents: an object that is gone or changed, and an outage."""

from tokenmill.errors import CorpusError, PassingError, TokenmillError
from tokenmill_reader import object_errors
from tokenmill_reader.errors import OutageError
from tokenmill_reader.object_errors import lasting_error


def storage_error(url: str, error: Exception) -> TokenmillError:
    """The error to raise for one that obstore raised at a URL. What may pass is a PassingError."""
    lasting = lasting_error(url, error)
    if lasting is None and isinstance(error, FileNotFoundError):
        return gone(url)
    if lasting is None and type(error).__name__ == "PreconditionError":
        return changed(url)
    found = lasting or object_errors.storage_error(url, error)
    return PassingError(found.where, found.what, found.fix) if isinstance(found, OutageError) else found


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
