"""The filters of each unit. Of a list of documents, these are the lines that concern it, so that a new line redoes only the units
with its documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from tokenmill.config.source_params import Source
from tokenmill.console import Advance
from tokenmill.corpus.filter import DocumentList, Filters
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.text_digests import text_digests, text_keys
from tokenmill.corpus.units import Unit
from tokenmill.features import PARTS
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.unit_content import content
from tokenmill.quantities import number_of
from tokenmill.rounds import Facts, Round, Rounds, Task, do
from tokenmill.storage.unit_store import unit_key
from tokenmill_reader.regular_files import naming

_IDS_FILE = "ids.npy"  # in a unit's folder
_TEXTS_FILE = "texts.npy"


class DocumentFacts(Facts, frozen=True):
    """How many documents a unit has."""

    n_documents: int

    def __str__(self) -> str:
        return number_of(self.n_documents, "document")


class DocumentsTask(Task[DocumentFacts], frozen=True, kw_only=True):
    """Writes the first 8 bytes of the sha256 of each id and of each text of a unit."""

    source: Source
    limits: Limits

    def run(self, folder: Path, advance: Advance) -> DocumentFacts:
        """Reads the documents (see Task)."""
        assert self.unit is not None
        none = pa.array([], pa.binary(32))
        ids, texts = [text_keys(none)], [text_keys(none)]
        for batch in GoodDocuments(self.unit, self.source, self.limits, advance, {}):
            texts.append(text_keys(text_digests(batch.digested)))
            if batch.ids is not None:
                ids.append(text_keys(text_digests(batch.ids)))
        for name, found in ((_IDS_FILE, ids), (_TEXTS_FILE, texts)):
            with naming(folder / name), (folder / name).open("wb") as file:
                np.save(file, np.unique(np.concatenate(found)), allow_pickle=False)
        return DocumentFacts(sum(map(len, texts)))


def unit_filters(project: Project) -> Rounds[dict[str, Filters]]:
    """The filters of each unit, by the unit's name, with the lines of lists that may match its documents.

    The digests of ids and texts come from the unit store, so only new and changed units are read; without lists, none. Raises
    CorpusError and UnitsError.
    """
    units, filters = project.units, project.read_filters()
    lists = {name: cast("DocumentList", filters[name]) for name in PARTS["lists"] if name in filters}
    if not lists:
        return {unit.name: filters for unit in units}
    keys = _keys(units)
    # Bad documents are reported by the stages that need them.
    lenient = project.params.source.model_copy(update={"on_bad_document": "quarantine", "on_bad_shard": "quarantine"})
    limits = project.memory.limits
    tasks = [
        DocumentsTask(
            name=unit.name, key=keys[unit.name], unit=unit, seen=project.seen(unit), source=lenient, limits=limits
        )
        for unit in units
    ]
    done = yield from do(Round("documents", tasks, DocumentFacts))
    return {unit.name: _of_unit(filters, lists, one.folder) for unit, one in zip(units, done, strict=True)}


def _keys(units: Sequence[Unit]) -> dict[str, str]:
    code = code_digest("count")
    return {
        unit.name: unit_key(
            stage="documents", content=content(unit, with_rows=False), code=code, source=unit.source.reading.as_key()
        )
        for unit in units
    }


def _of_unit(filters: Filters, lists: Mapping[str, DocumentList], folder: Path) -> Filters:
    """The filters with those lines of lists that may match documents of the unit with this folder; without any, not the list."""
    ids, texts = (np.load(folder / name, allow_pickle=False) for name in (_IDS_FILE, _TEXTS_FILE))
    parts = {name: part for name, whole in lists.items() if len(part := whole.of_unit(ids, texts))}
    return {name: parts.get(name, one) for name, one in filters.items() if name not in lists or name in parts}
