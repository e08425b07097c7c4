"""Finds the lines of source.drop that concern each unit, so that a new line redoes only the units with its documents."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from tokenmill.config.params import Params, Source
from tokenmill.console import progress
from tokenmill.corpus.drop import DropLine, DropList, DropParts, DroppedDocument, drop_list
from tokenmill.corpus.dropped import find_none
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.quarantine import Documents
from tokenmill.corpus.text_digests import text_digests, text_keys
from tokenmill.corpus.units import Unit
from tokenmill.pipeline.code_digest import code_digest
from tokenmill.pipeline.executor import RunUnits
from tokenmill.pipeline.unit_runner import UnitRunner, content
from tokenmill.pipeline.unit_work import Job
from tokenmill.storage.atomic import naming
from tokenmill.storage.unit_store import UnitStore, unit_key

_STAGE = "documents"
_IDS_FILE = "ids.npy"  # in a unit's folder
_TEXTS_FILE = "texts.npy"


class DocumentFacts(msgspec.Struct, frozen=True):
    """How many documents a unit has."""

    n_documents: int
    n_left_out: int = 0  # bad documents are reported by the stages that need them

    def __str__(self) -> str:
        return f"{self.n_documents:,} documents"


def unit_drops(source: Source, runner: UnitRunner, run_units: RunUnits) -> dict[str, DropList]:
    """The lines of source.drop that may match documents of each unit, by the unit's name.

    The digests of ids and texts come from the unit store, so only new and changed units are read; without source.drop, none. Raises
    CorpusError and UnitsError.
    """
    units, whole = runner.corpus.units, drop_list(runner.root, source.drop, runner.has_ids)
    if not whole.lines:
        return {unit.name: whole for unit in units}
    keys = _keys(units)
    lenient = source.model_copy(update={"on_bad_document": "quarantine", "on_bad_shard": "quarantine"})
    with progress(_STAGE, runner.corpus.n_bytes, "bytes") as now:
        do = partial(_documents, source=lenient, limits=runner.memory.limits)
        done = runner.finish(_STAGE, do, units, keys, DocumentFacts, run_units, shown=now)
    parts = DropParts(whole)
    return {unit.name: _of_unit(parts, one.folder) for unit, one in zip(units, done, strict=True)}


def lines_without_documents(
    whole: DropList, drops: Mapping[str, DropList], dropped: Iterable[DroppedDocument]
) -> list[DropLine]:
    """The lines of the list that match no document, in order. `dropped`: the documents that were left out. A line with both an id
    and a digest matches only a document that has both."""
    used = {line for some in drops.values() for line in some.lines}
    named = {(one.id, one.sha256) for one in dropped}
    return [
        line
        for line in whole.lines
        if line not in used or (None not in (line.id, line.sha256) and (line.id, line.sha256) not in named)
    ]


def known_drops(root: Path, params: Params, units: Sequence[Unit], store: UnitStore) -> dict[str, DropList]:
    """What `unit_drops` would give, without reading documents: a unit that was not read yet gets every line."""
    whole = drop_list(root, params.source.drop, params.has_ids)
    parts = DropParts(whole)
    keys = _keys(units) if whole.lines else {}
    done = {name: store.find(key, DocumentFacts) for name, key in keys.items()}
    return {unit.name: _of_unit(parts, one.folder) if (one := done.get(unit.name)) else whole for unit in units}


def _keys(units: Sequence[Unit]) -> dict[str, str]:
    code = code_digest("count")
    return {
        unit.name: unit_key(
            stage=_STAGE, content=content(unit, with_rows=False), code=code, source=unit.source.reading.as_key()
        )
        for unit in units
    }


def _of_unit(parts: DropParts, folder: Path) -> DropList:
    ids, texts = (np.load(folder / name, allow_pickle=False) for name in (_IDS_FILE, _TEXTS_FILE))
    return parts.of_unit(ids, texts)


def _documents(job: Job, source: Source, limits: Limits) -> DocumentFacts:
    """Writes the first 8 bytes of the sha256 of each id and of each text of a unit."""
    none = pa.array([], pa.binary(32))
    ids, texts = [text_keys(none)], [text_keys(none)]
    for _, batch in Documents(job.unit, source, limits, job.advance, find_none):
        texts.append(text_keys(text_digests(batch.digested)))
        if batch.ids is not None:
            ids.append(text_keys(text_digests(batch.ids)))
    for name, found in ((_IDS_FILE, ids), (_TEXTS_FILE, texts)):
        with naming(job.folder / name), (job.folder / name).open("wb") as file:
            np.save(file, np.unique(np.concatenate(found)), allow_pickle=False)
    return DocumentFacts(sum(map(len, texts)))
