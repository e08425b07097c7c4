"""Describes a token dataset, in a folder or in object storage, by its manifest."""

import json
from pathlib import Path
from typing import Any

from tokenmill.versioning.stored import MANIFEST, manifest_of
from tokenmill_reader import description
from tokenmill_reader import manifest as reader_manifest
from tokenmill_reader.description import lines_of as lines_of


def info(dataset: Path | str) -> dict[str, Any]:
    """What tokenmill_reader.info says of a dataset. Raises ValidationError if there is none.

    `dataset`: its folder, or PLACE/DIGEST in object storage, of which only the manifest is fetched."""
    if isinstance(dataset, Path):
        return description.info(dataset)
    content = json.loads(manifest_of(dataset).as_json())
    return description.described(reader_manifest.manifest_of(content, f"{dataset}/{MANIFEST}"), dataset)
