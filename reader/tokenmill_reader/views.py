"""The kinds of items of a dataset: documents, packed sequences, or windows over the concatenated ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from tokenmill_reader.blocks import Blocks, joined
from tokenmill_reader.boundaries import NO_LABEL, labels
from tokenmill_reader.errors import ValidationError, need_pyarrow
from tokenmill_reader.formats.table import PARQUET_SUFFIX
from tokenmill_reader.open_parts import Place, SourceIds

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokenmill_reader.array_types import Ids, Labels, Longs, Mask, Starts


def _without_starts(mask: Mask, starts: Starts) -> Mask:
    """The mask with 0 at these starts."""
    mask[starts] = 0
    return mask


class Documents:
    """The documents of a dataset, with numbers from 0. `item(i)`: the ids of one, read-only. `items(indexes)`: those of several, in
    this order."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.item: Callable[[int], Ids] = blocks.item
        self.items: Callable[[Longs], list[Ids]] = blocks.items

    def __len__(self) -> int:
        return self.blocks.n_items

    @property
    def first_items(self) -> Longs:
        """The number of the first item of each part, and the end."""
        return self.blocks.first_items

    def starts(self, i: int) -> Starts:
        """Where documents, or parts of documents, begin in an item: positions from 0, rising."""
        return np.zeros(min(len(self.item(i)), 1), np.int32)

    def source_ids(self, i: int, sources: SourceIds) -> Starts:
        """The source of each start of an item; of a document, its source."""
        return sources.of(*self.blocks.place_of(i), 1)

    def loss_mask(self, i: int) -> Mask:
        """The loss mask of an item, of a dataset of conversations. In sequences and windows it is 0 at each start."""
        return self.blocks.mask(i)


class Windows:
    """All ids of a dataset back to back, in windows of one length. The last ids, which do not fill a window, are in none."""

    def __init__(self, blocks: Blocks, length: int) -> None:
        self.blocks: Blocks = blocks
        self._length = length

    def __len__(self) -> int:
        return self.blocks.n_tokens // self._length

    @property
    def first_items(self) -> Longs:
        """See Documents. A window is of the part in which it begins."""
        firsts: Longs = np.minimum(-(-self.blocks.first_tokens // self._length), len(self))
        return firsts

    def with_ends(self, groups: Sequence[Sequence[int]]) -> list[list[int]]:
        """These groups of parts, each with the parts that have the ends of its windows."""
        last_tokens = self.first_items[1:] * self._length - 1
        last_parts = (np.searchsorted(self.blocks.first_tokens, last_tokens, side="right") - 1).tolist()
        return [
            list(dict.fromkeys([*group, *(i for part in group for i in range(part + 1, last_parts[part] + 1))]))
            for group in groups
        ]

    def item(self, i: int) -> Ids:
        """See Documents."""
        return self.blocks.tokens(i * self._length, self._length)

    def items(self, indexes: Longs) -> list[Ids]:
        """See Documents."""
        return [self.item(i) for i in indexes.tolist()]

    def starts(self, i: int) -> Starts:
        """See Documents."""
        return self.blocks.starts(i * self._length, self._length)

    def source_ids(self, i: int, sources: SourceIds) -> Starts:
        """See Documents."""
        places = [self.blocks.place_of_token(i * self._length + start) for start in self.starts(i).tolist()]
        return np.concatenate([sources.of(*place, 1) for place in places])

    def loss_mask(self, i: int) -> Mask:
        """See Documents."""
        return _without_starts(self.blocks.masks(i * self._length, self._length), self.starts(i))


class Rows:
    """Packed sequences that are the items of a file set. `pad_id`: fills them up. `end_id`: ends documents. None: no id does."""

    def __init__(self, blocks: Blocks, pad_id: int | None, end_id: int | None) -> None:
        self.blocks: Blocks = blocks
        self._pad_id, self._end_id = pad_id, end_id
        self.item: Callable[[int], Ids] = blocks.item
        self.items: Callable[[Longs], list[Ids]] = blocks.items

    def __len__(self) -> int:
        return self.blocks.n_items

    @property
    def first_items(self) -> Longs:
        """See Documents."""
        return self.blocks.first_items

    def starts(self, i: int) -> Starts:
        """See Documents."""
        block, i = self.blocks.find(i)
        assert block.starts is not None
        offsets = block.starts.offsets
        found: Starts = block.starts.values[offsets[i] : offsets[i + 1]]
        return found

    def source_ids(self, i: int, sources: SourceIds) -> Starts:
        """See Documents."""
        return sources.of(*self.blocks.place_of(i), len(self.starts(i)))

    def loss_mask(self, i: int) -> Mask:
        """See Documents."""
        return self.blocks.mask(i)

    def labels(self, i: int) -> Labels:
        """The labels of an item: those of the files, where they have some."""
        block, k = self.blocks.find(i)
        if block.labels is not None:
            return block.labels[block.offsets[k] : block.offsets[k + 1]]
        ids, starts = self.item(i), self.starts(i)
        if block.loss_mask is not None:
            return labels(ids, starts, self.loss_mask(i))  # which is 0 in what fills the sequence up
        found = labels(ids, starts)
        if self._pad_id is not None and len(ids):
            found[self._n_content(ids, int(starts[-1])) :] = NO_LABEL
        return found

    def _n_content(self, ids: Ids, last_start: int) -> int:
        """The number of ids before those that fill the sequence up. Only whole documents are before them."""
        content = np.flatnonzero(ids[last_start:] != self._pad_id)
        n_ids = int(content[-1]) + 1 if len(content) else 0
        own_end = self._pad_id == self._end_id or not n_ids  # the document's own last id looks like what fills up
        return last_start + n_ids + own_end


class _Pieces(NamedTuple):
    """The pieces of documents that make the sequences of a file of an index. `bounds`: the first piece of each, and the end."""

    part: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    start: npt.NDArray[np.int32]
    n_tokens: npt.NDArray[np.int32]
    bounds: Longs


class Indexed:
    """Packed sequences that an index makes from documents. `index`: its files, each with the number of the part that it calls 0."""

    def __init__(self, blocks: Blocks, index: Sequence[tuple[Place, int]]) -> None:
        self.blocks: Blocks = blocks
        self._index = index
        *self._first_items, self._n_items = accumulate((place.n_items for place, _ in index), initial=0)
        self._read: dict[int, _Pieces] = {}

    def __len__(self) -> int:
        return self._n_items

    @property
    def first_items(self) -> Longs:
        """See Documents. An index has as many equal ranges of items as there are parts: its sequences follow the documents."""
        n_parts = len(self.blocks.n_items_of_part)
        return np.arange(n_parts + 1) * self._n_items // max(n_parts, 1)

    def item(self, i: int) -> Ids:
        """See Documents."""
        found = self._pieces_of(i, self.blocks.item)
        return found[0] if len(found) == 1 else joined(found)

    def items(self, indexes: Longs) -> list[Ids]:
        """See Documents."""
        return [self.item(i) for i in indexes.tolist()]

    def starts(self, i: int) -> Starts:
        """See Documents."""
        pieces, low, high = self._find(i)
        ends = np.cumsum(pieces.n_tokens[low:high])
        return np.append(0, ends[:-1]).astype(np.int32)

    def source_ids(self, i: int, sources: SourceIds) -> Starts:
        """See Documents."""
        pieces, low, high = self._find(i)
        numbers = [self.blocks.number_of(pieces.part.item(k), pieces.row.item(k)) for k in range(low, high)]
        return np.concatenate([sources.of(*self.blocks.place_of(number), 1) for number in numbers])

    def loss_mask(self, i: int) -> Mask:
        """See Documents."""
        return _without_starts(np.concatenate(self._pieces_of(i, self.blocks.mask)), self.starts(i))

    def _pieces_of(self, i: int, values_of: Callable[[int], Any]) -> list[Any]:
        """The values of each piece of an item. `values_of`: gives those of a document."""
        pieces, low, high = self._find(i)
        parts = []
        for k in range(low, high):
            start = pieces.start.item(k)
            document = values_of(self.blocks.number_of(pieces.part.item(k), pieces.row.item(k)))
            parts.append(document[start : start + pieces.n_tokens.item(k)])
        return parts

    def _find(self, i: int) -> tuple[_Pieces, int, int]:
        file = bisect_right(self._first_items, i) - 1
        if file not in self._read:
            self._read[file] = self._read_pieces(*self._index[file])
        pieces = self._read[file]
        i -= self._first_items[file]
        return pieces, pieces.bounds.item(i), pieces.bounds.item(i + 1)

    def _read_pieces(self, place: Place, first_part: int) -> _Pieces:
        path = place.folder / f"{place.stem}{PARQUET_SUFFIX}"
        need_pyarrow(path)
        from tokenmill_reader.formats.index import read_index_file

        held = None if self.blocks.cached is None else self.blocks.cached.hold(place.files)
        bounds, columns = read_index_file(path)
        del held  # it is in memory now
        part, row, start, n_tokens = (column.astype(np.int32) for column in columns)
        part += first_part
        n_items = np.array(self.blocks.n_items_of_part)
        if len(bounds) - 1 != place.n_items or (part >= len(n_items)).any() or (row >= n_items[part]).any():
            raise ValidationError(
                path,
                f"expected {place.n_items:,} sequences of documents that are there; found others.",
                "Run `tokenmill verify`, and `tokenmill build --force` to make the dataset again.",
            )
        return _Pieces(part, row, start, n_tokens, bounds)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": {}}


View = Union[Documents, Windows, Rows, Indexed]
"""The kinds of items that a reader can give."""
