"""The interface of a file format of a token dataset: how items are written and read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tokenmill_reader.formats.items import STARTS_SUFFIX, Flat, Shape

Write = Callable[[Path, str, Shape], AbstractContextManager[Callable[[pa.RecordBatch], None]]]
Read = Callable[[Path, str, Shape], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Format:
    """A file format.

    `suffixes`: those of a part's files, which share a stem; a whole name has a star in the stem's place. `packed_suffixes`,
    `mask_suffixes`: those of the further files of a part of packed sequences, and of conversations. `write(folder, stem, shape)`
    opens the files of a new part, and yields what adds a batch of items. Equal items give equal bytes in any batches. Raises
    ValidationError for an item that the format cannot hold. `read(folder, stem, shape)` gives the items, with those columns of the
    shape that the format holds (always `input_ids`, and `starts` of sequences). Raises ValidationError for malformed or
    inconsistent files. `flat(folder, stem, shape)` gives the ids in order without a copy, in one or more arrays; None if the format
    has no such arrays. Raises ValidationError as `read` does. `refusal(shape, file_bytes)` says why the format cannot hold such
    items in files of that many bytes, or gives None. `finish(folder, stems, shape)` writes the files `shared` by all parts of a
    set, and raises ValidationError for parts that do not go together; None if there is nothing to do. `one_file`: a set is one
    part, named after its split, without a folder of its own. `has_places`: its files name the shard and row of each document.
    `part`: what a stem is before the part's number. `is_table`: its files have all columns of the items; of other formats, a file
    beside a part has the sources of its items, if it mixes some.
    """

    name: str
    suffixes: Sequence[str]
    write: Write
    read: Read
    flat: Callable[[Path, str, Shape], list[Flat]] | None
    refusal: Callable[[Shape, int], str | None]
    finish: Callable[[Path, Sequence[str], Shape], None] | None = None
    shared: Sequence[str] = ()
    one_file: bool = False
    packed_suffixes: Sequence[str] = ()
    mask_suffixes: Sequence[str] = ()
    has_places: bool = False
    part: str = "part-"
    is_table: bool = False

    def files(self, stem: str, shape: Shape) -> list[str]:
        """The names of the files of a part with items of this shape."""
        packed = [] if shape.length is None else self.packed_suffixes
        masks = self.mask_suffixes if shape.has_mask else []
        beside = [STARTS_SUFFIX] if shape.has_sources and not self.is_table else []
        names = (one if "*" in one else f"*{one}" for one in (*self.suffixes, *packed, *masks, *beside))
        return list(dict.fromkeys(name.replace("*", stem) for name in names))
