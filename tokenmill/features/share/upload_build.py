"""upload: an up-to-date build → a dataset in object storage, or in another folder."""

from pathlib import Path

from tokenmill.features.share.upload import Uploaded
from tokenmill.features.share.upload import upload as upload_files
from tokenmill.layout import UPLOADS_FILE
from tokenmill.pipeline.alone import alone
from tokenmill.versioning.publish import check_build


def upload(root: Path, place: str) -> Uploaded:
    """Checks the build as `publish` does, and uploads its dataset to `place`. After an interruption, a second call continues.
    Raises BusyError, VersionsError, TokenizerError, ValidationError, StorageError, PassingError."""
    with alone(root, wait=False):
        check_build(root, may_change=UPLOADS_FILE)
        return upload_files(root, place)
