"""The items of the index of packed sequences: which documents, in which files, make each sequence."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tokenmill.file_sets.cuts import DocumentFiles
from tokenmill.file_sets.packing import Segments
from tokenmill.file_sets.packing import part as sequences_between
from tokenmill.formats.index import ITEMS

_INDEX_ROWS = 1 << 16


def index_of_part(files: DocumentFiles, segments: Segments, wanted: range) -> Iterator[pa.RecordBatch]:
    """The segments of each sequence in `wanted`, numbers of sequences of a part. `files`: where the part's documents are."""
    used, chosen = sequences_between(segments, wanted.start, wanted.stop)
    document = chosen.document + used.start
    file = np.searchsorted(files.bounds, document, side="right") - 1
    bounds = np.searchsorted(chosen.sequence, np.arange(len(wanted) + 1))
    values = (files.first + file, document - np.array(files.bounds)[file], chosen.start, chosen.n_tokens)
    for first in range(0, len(wanted), _INDEX_ROWS):
        offsets = bounds[first : first + _INDEX_ROWS + 1]
        list_offsets = pa.array((offsets - offsets[0]).astype(np.int32))
        columns = [
            pa.ListArray.from_arrays(
                list_offsets, pa.array(column[offsets[0] : offsets[-1]], pa.int64()), type=field.type
            )
            for column, field in zip(values, ITEMS, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ITEMS)
