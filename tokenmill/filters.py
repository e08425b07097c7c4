"""The filters that a project asks for."""

from pathlib import Path

from tokenmill.config.source_params import Source
from tokenmill.corpus.drop import drop_list
from tokenmill.corpus.filter import Filters


def asked_filters(root: Path, source: Source, has_ids: bool) -> Filters:
    """What says which documents the project at `root` leaves out, in order. `has_ids`: whether documents have ids. Raises
    CorpusError for a list of source.drop that cannot be read."""
    listed = drop_list(root, source.drop, has_ids)
    return {"drop": listed} if listed.lines else {}
