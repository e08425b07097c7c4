"""The file sets of a build, as their formats read them."""

from typing import Any

from tests.conftest import Project
from tokenmill.dataset.entries import FileSet
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill_reader.formats.items import Shape


def shape(manifest: Manifest) -> Shape:
    begin, end = manifest.begin_of_document_id, manifest.end_of_document_id
    pack = manifest.files.pack if manifest.files else None
    length, has_labels = (pack.length, pack.labels) if pack and pack.output == "rows" else (None, False)
    has_sources = manifest.files is not None and manifest.files.source_ids
    return Shape(
        manifest.id_max,
        manifest.tokenizer_digest,
        begin,
        end,
        True,
        length,
        has_labels,
        manifest.has_mask,
        has_sources=has_sources,
    )


def items(project: Project, one: FileSet) -> list[list[dict[str, Any]]]:
    """The items of each part of a set, as the format reads them."""
    tokens = project.root / "data/tokens"
    manifest = read_manifest(tokens)
    parts = []
    for part in one.parts:
        first = tokens / part.files[0].name
        stem = first.name.split(".")[0]
        batches = SET_FORMATS[one.format].read(first.parent, stem, shape(manifest))
        parts.append([row for batch in batches for row in batch.to_pylist()])
    return parts
