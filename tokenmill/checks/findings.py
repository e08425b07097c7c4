"""What a check of a dataset finds: something wrong, or something that could not be checked."""

from collections.abc import Iterable
from dataclasses import dataclass

from tokenmill.errors import TokenmillError, ValidationError
from tokenmill_reader.manifest import MANIFEST_FILE

BUILD = "Run `tokenmill build`."
FORCE = "Run `tokenmill build --force`."
COPY = "Copy the dataset again, or run `tokenmill build --force`."


class WrongRowError(ValidationError):
    """A row of a dataset does not match its document. `shard`, `row`: the input file, and the document's row in it from 0."""

    def __init__(self, shard: str, row: int, what: str) -> None:
        self.row: int = row
        super().__init__(f"{shard}: row {row}", what)


@dataclass(frozen=True)
class Finding:
    """Something that is wrong in a dataset.

    `file`: relative to the dataset's folder, or `../tables/…` and the like beside it. `row`: the document's row in its input file
    from 0, which `what` names; None if it is not about one document. `what`: what was expected and found. `fix`: what to do; empty
    if that depends on the cause.
    """

    file: str
    row: int | None
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what} {self.fix}".rstrip()


@dataclass(frozen=True)
class NotChecked:
    """A check that was asked for and could not be made. `why`: what is missing, and what to do."""

    why: str


def in_manifest(what: str, fix: str = FORCE) -> Finding:
    """A finding in the manifest."""
    return Finding(MANIFEST_FILE, None, what, fix)


def of_error(file: str, error: Exception) -> Finding:
    """The finding of a file that could not be read or checked to its end."""
    if not isinstance(error, TokenmillError):
        return Finding(file, None, str(error) or type(error).__name__, "")
    what = "; ".join(error.what.split("\n"))
    row = error.row if isinstance(error, WrongRowError) else None
    return Finding(file, row, f"{error.where}: {what}" if error.where else what, error.fix)


def raise_first(findings: Iterable[Finding | NotChecked], folder: str) -> None:
    """Raises ValidationError with the first finding, if there is one. `folder`: the dataset's folder or URL, for the message."""
    for finding in findings:
        if isinstance(finding, NotChecked):
            raise ValidationError(folder, f"cannot be checked: {finding.why}")
        is_beside = finding.file.startswith("../")
        place = f"{folder.rpartition('/')[0]}/{finding.file[3:]}" if is_beside else f"{folder}/{finding.file}"
        raise ValidationError(place, finding.what, finding.fix)
