"""Measures how large file sets become, on the units of a sample."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from tokenmill.dataset.document_index import read_unit_index
from tokenmill.file_sets.arrangement import Arrangement
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.planned import documents_shape
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.index import INDEX_FORMAT
from tokenmill.layout import SCRATCH_DIRECTORY
from tokenmill.pipeline.pools import Threads
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.run import Driver
from tokenmill.pipeline.run_task import advance_nothing
from tokenmill.stages.encode_dataset import files_of
from tokenmill.stages.encode_sets import WriteTask, refuse_formats
from tokenmill.stages.encoder import Encoder
from tokenmill.storage.unit_store import UnitStore


class SetRates(NamedTuple):
    """What a token of the documents becomes in file sets, if each document is in them once and they are not shuffled. `set_bytes`:
    the bytes of the sets of all formats together. `index_bytes`: those of the index of sequences. `segment_bytes`: those that the
    unit store keeps to say how documents are packed. `n_items`, `n_tokens`: the items of one set, and their tokens."""

    set_bytes: float = 0.0
    index_bytes: float = 0.0
    segment_bytes: float = 0.0
    n_items: float = 0.0
    n_tokens: float = 0.0


NO_SETS = SetRates()


def measure_sets(units: Sequence[EncodedUnit], encoder: Encoder, project: Project, scratch: Path) -> SetRates:
    """Arranges and writes the units as a build does. Raises what a build would raise for them, such as ParamsError."""
    params = project.params.encode
    names = params.set_formats(project.sources.values())
    n_tokens = sum(int(read_unit_index(unit.index, ["n_tokens"])["n_tokens"].to_numpy().sum()) for unit in units)
    if not names or not n_tokens:
        return NO_SETS
    files = files_of(params, encoder.tokenizer)
    files = files.model_copy(update={"splits": {}, "split_group": None, "shuffle": None})
    documents = documents_shape(encoder.tokenizer, encoder.begin_id, encoder.end_id, project.has_ids, encoder.turns)
    arrangement = Arrangement("plan", files, [SET_FORMATS[name] for name in names], documents, 1, "")
    refuse_formats(names, params, arrangement.shape)
    sets = Driver(scratch, UnitStore(scratch)).run(arrangement.sets(units, ""), Threads(1))
    packed_bytes = _n_bytes(scratch / SCRATCH_DIRECTORY)
    sizes = {True: 0, False: 0}  # of the index, and of the sets
    n_items = n_set_tokens = 0
    for file_set in sets:
        is_index = file_set.format.name == INDEX_FORMAT.name
        for file in file_set.files:
            folder = Path(mkdtemp(dir=scratch))
            task = WriteTask(
                name=file.name, key=file.key, format=file_set.format, shape=arrangement.shape, items=file.items
            )
            facts = task.run(folder, advance_nothing)
            sizes[is_index] += _n_bytes(folder)
            if file_set.format.name == names[0]:
                n_items, n_set_tokens = n_items + facts.n_items, n_set_tokens + facts.n_tokens
    found = (sizes[False], sizes[True], packed_bytes, n_items, n_set_tokens)
    return SetRates(*(n / n_tokens for n in found))


def _n_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
