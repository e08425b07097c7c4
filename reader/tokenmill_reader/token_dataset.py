"""Reads a token dataset for a training job: documents, packed sequences or windows, in the order of the files or shuffled."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import partial
from math import isqrt
from os import PathLike, fspath
from typing import TYPE_CHECKING, overload

import numpy as np

from tokenmill_reader.block_order import BlockOrder
from tokenmill_reader.blocks import Blocks
from tokenmill_reader.boundaries import labels
from tokenmill_reader.dataset_files import DatasetFiles, find_files
from tokenmill_reader.errors import ParamsError
from tokenmill_reader.manifest import Manifest
from tokenmill_reader.order import Order, order_key
from tokenmill_reader.rank_iterator import RankIterator
from tokenmill_reader.urls import RemoteDataset, dataset_folder, default_cache, remote_dataset
from tokenmill_reader.views import Documents, Indexed, Rows, View, Windows

if TYPE_CHECKING:
    from tokenmill_reader.array_types import Ids, Labels, Longs, Mask, Starts

_AT_ONCE = 256  # items that an iteration looks up at once
_POSITIONS = 1 << 12  # of an order that are computed at once: 1 ms, and 32 kB


class TokenDataset:
    """The items of a token dataset: documents, or what was made of them, each an array of token ids.

    `dataset[i]` is an item: a read-only numpy array, uint16 or uint32, without a copy where the files are memory-mapped. A slice
    gives a list of them. An object of this class does not change; its methods give others, over the same files. It may be
    handed to other processes, such as workers of a DataLoader, which open the files again. `open` makes it.
    """

    def __init__(
        self,
        files: DatasetFiles,
        view: View,
        kind: str,
        length: int | None,
        seed: int | None = None,
        epoch: int = 0,
        block: int | None = None,
    ) -> None:
        self._files, self._view, self._kind, self._length, self._seed = files, view, kind, length, seed
        self.epoch: int = epoch
        self._block = block
        self._order: Order | BlockOrder | None = None
        if seed is not None:
            names = (files.split, files.source, f"windows of {length}" if kind == "windows" else None)
            key_of = partial(_key_of, files.tokens_digest, seed, epoch, [name for name in names if name is not None])
            if block is None:
                self._order = Order(len(view), key_of())
            else:  # a window over the end of a part needs the next one, too
                run = isqrt(block) if isinstance(view, Windows) else 1
                self._order = BlockOrder(view.first_items, block, key_of, run)
        self._n_items = len(view)
        self._groups = [] if view.blocks.cached is None else self._groups_of_parts()
        self._known: tuple[int, Longs] = (-1, np.empty(0, np.int64))

    @property
    def manifest(self) -> Manifest:
        """What the manifest of the whole dataset says."""
        return self._files.manifest

    @property
    def format(self) -> str:
        """The format of the files that are read."""
        return self._files.format

    def __len__(self) -> int:
        return self._n_items

    @overload
    def __getitem__(self, index: int) -> Ids: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ids]: ...
    def __getitem__(self, index: int | slice) -> Ids | list[Ids]:
        if (
            type(index) is int and 0 <= index < self._n_items and self._order is None
        ):  # most often, and a quarter faster
            return self._view.item(index)
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(self._n_items)))
        return self._view.item(self._number(index))

    def __iter__(self) -> Iterator[Ids]:
        return self.items_at(range(self._n_items))

    def items_at(self, positions: range) -> Iterator[Ids]:
        """The items with these numbers, from 0 on, one after another."""
        for first in range(0, len(positions), _POSITIONS):
            self._announce()
            some = positions[first : first + _POSITIONS]
            numbers = np.arange(some.start, some.stop, some.step)
            if self._order is not None:
                numbers = self._order.item_at(numbers)
            for at in range(0, len(numbers), _AT_ONCE):
                yield from self._view.items(numbers[at : at + _AT_ONCE])

    def take(self, indexes: Sequence[int] | Longs) -> list[Ids]:
        """The items with these numbers, in this order: faster than one by one. Raises IndexError, as an index of one does."""
        numbers = np.asarray(indexes, np.int64)
        outside = (numbers < -self._n_items) | (numbers >= self._n_items)
        if outside.any():
            raise self._index_error(int(numbers[outside][0]))
        numbers = np.where(numbers < 0, numbers + self._n_items, numbers)
        self._announce()
        return self._view.items(numbers if self._order is None else self._order.item_at(numbers))

    __getitems__ = take
    """PyTorch's DataLoader asks for a batch with it."""

    def by_block(self, indexes: Longs) -> list[Longs]:
        """These rising numbers of items, in pieces of one block each; all in one without blocks."""
        if not isinstance(self._order, BlockOrder):
            return [indexes]
        return np.split(indexes, np.flatnonzero(np.diff(self._order.block_of(indexes))) + 1)

    def starts(self, index: int) -> Starts:
        """Where documents begin in an item: int32, positions in it, rising. The first is 0, whether a document begins there or goes
        on. tokenmill_reader.boundaries makes position ids, cumulative lengths and labels of them."""
        return self._view.starts(self._number(index))

    def source_ids(self, index: int) -> Starts:
        """The source of each start of an item: int32, its number in `manifest.sources`; 0 without named sources. Raises ParamsError
        for a shuffled mixture that an earlier tokenmill built, whose files do not say it."""
        return self._view.source_ids(self._number(index), self._files.source_ids)

    def labels(self, index: int) -> Labels:
        """The ids of an item as labels: int32, with -100 for the first id of each document after the first, for what fills a packed
        sequence up, and where the loss mask is 0. They are at the places of their ids; models shift them by one."""
        i = self._number(index)
        if isinstance(self._view, Rows):
            return self._view.labels(i)
        mask = self._view.loss_mask(i) if self._files.shape.has_mask else None
        return labels(self._view.item(i), self._view.starts(i), mask)

    def loss_mask(self, index: int) -> Mask:
        """The loss mask of an item of conversations: int8, 1 for each id that is to be learned, else 0. In sequences it is 0 at
        each start, since the token before is of another document, and in what fills them up. Raises ParamsError for texts and for
        a format without masks."""
        if not self._files.shape.has_mask:
            raise ParamsError(
                "loss_mask",
                "expected a dataset of conversations, in a format with their masks; found "
                f"{self._files.format} without masks, whose tokens are all to be learned.",
            )
        return self._view.loss_mask(self._number(index))

    def sequences(self, length: int) -> TokenDataset:
        """All documents back to back in the order of the dataset, in sequences of `length` ids each, without the last ids that do
        not fill one. A sequence is a copy only where it goes over the end of a file. Raises ParamsError if the items are no
        documents."""
        blocks = self._blocks("sequences")
        if length < 1:
            raise ParamsError("sequences: length", f"expected 1 or more; found {length}.")
        return TokenDataset(self._files, Windows(blocks, length), "windows", length)

    def packed(self) -> TokenDataset:
        """The packed sequences of a dataset that was built with `encode.pack.output: index`. Raises ParamsError if there is no
        index, or if it is shuffled and the documents do not fit into `cache_bytes`."""
        blocks = self._blocks("packed")
        pack = None if self.manifest.files is None else self.manifest.files.pack
        if pack is None or pack.output != "index":
            raise ParamsError(
                "packed", "expected a dataset with an index; found none.", "Build with encode.pack.output: index."
            )
        packed = TokenDataset(self._files, Indexed(blocks, self._files.index_files), "sequences", pack.length)
        if blocks.cached is not None and self._has_shuffled_index:
            blocks.cached.refuse_order(
                packed._groups,
                "packed",
                "Its index is shuffled (encode.shuffle), so any part may be next. Give a larger cache_bytes; or build "
                "without encode.shuffle, and shuffle(…, block=…) the packed sequences.",
            )
        return packed

    def shuffle(self, seed: int, epoch: int = 0, *, block: int | None = None) -> TokenDataset:
        """A dataset of the same items in an order that is a function of the dataset's tokens, `seed`, `epoch`, the split, and the
        length of `sequences`. It needs no memory for the order. Shuffled documents have the order that a build with
        `encode.shuffle` writes.

        `block`: shuffle the parts of the files, and then the items of each `block` parts together, so that only so many files are
        read at a time. Of `sequences`, some parts stay neighbours, 8 of 64, since a sequence may go over the end of a part. The
        order depends on the number of items in each part, too. Raises ParamsError if the items are shuffled
        by this already, or if parts that are read together do not fit into `cache_bytes`."""
        if self._seed is not None:
            raise ParamsError(
                "shuffle", f"expected items in the order of the files; found them shuffled with seed {self._seed}."
            )
        if not (0 <= seed < 1 << 63 and 0 <= epoch < 1 << 63):
            raise ParamsError("shuffle", f"expected a seed and an epoch from 0 to 2^63 - 1; found {seed} and {epoch}.")
        if block is not None and block < 1:
            raise ParamsError("shuffle: block", f"expected 1 or more parts; found {block}.")
        shuffled = TokenDataset(self._files, self._view, self._kind, self._length, seed, epoch, block)
        if (cached := self._view.blocks.cached) is not None:
            cached.refuse_order(shuffled._groups)
        return shuffled

    def at_epoch(self, epoch: int) -> TokenDataset:
        """A dataset of the same items in the order of another epoch, if they are shuffled. Raises ParamsError if epochs have files
        of their own."""
        files = self._files.manifest.files
        if epoch != self.epoch and self._seed is None and files and files.shuffle and files.shuffle.epochs > 1:
            raise ParamsError(
                f"epoch {epoch}",
                "each epoch of this dataset has files of its own.",
                f"Open them: tokenmill.open(…, epoch={epoch}).",
            )
        return TokenDataset(self._files, self._view, self._kind, self._length, self._seed, epoch, self._block)

    def shard(self, rank: int, world: int, *, drop_last: bool = False) -> RankIterator:
        """The items of one of `world` processes: those with the numbers rank, rank + world, rank + 2 * world, and so on.

        `drop_last`: leave out the last items if there are fewer than processes, so that all get equally many. The iterator has a
        state, from which another number of processes can go on.
        """
        if not 0 <= rank < world:
            raise ParamsError("shard", f"expected a rank from 0 to world - 1; found rank {rank} of {world}.")
        return RankIterator(self, rank, world, drop_last)

    def state(self) -> dict[str, int | str | None]:
        """The values that decide the items and their order: integers, strings and null. They are the same for formats
        whose parts have the same numbers of items, and without `block` for all."""
        blocks: dict[str, int | str | None] = {}
        if isinstance(self._order, BlockOrder):
            blocks = {"block": self._block, "parts": self._order.parts_digest}
        return {
            "data": self._files.digest,
            "split": self._files.split,
            "source": self._files.source,
            "files_epoch": self._files.epoch,
            "items": self._kind,
            "length": self._length,
            "n_items": self._n_items,
            "seed": self._seed,
            "epoch": self.epoch,
            **blocks,
        }

    def __repr__(self) -> str:
        """Grain's DataLoader takes a state if this text is the same."""
        files = self._files
        what = f"{self._kind} of {self._length} ids" if self._length is not None else self._kind
        names = "/".join(filter(None, (files.split, files.source, f"epoch-{files.epoch}" if files.epoch else None)))
        order = "" if self._seed is None else f", shuffled with seed {self._seed} for epoch {self.epoch}"
        if isinstance(self._order, BlockOrder):
            order += f" in blocks of {self._block} (parts {self._order.parts_digest})"
        of = f" of {names}" if names else ""
        return f"<TokenDataset: {self._n_items:,} {what}{of}, {self.format}{order}, data {files.digest[:16]}>"

    def _blocks(self, method: str) -> Blocks:
        if isinstance(self._view, Documents) and self._seed is None:
            return self._view.blocks
        what = f"{method}: expected documents in the order of the files; found {self!r}"
        if self._seed is not None:
            raise ParamsError("", f"{what}.", f"Call shuffle after {method}.")
        if isinstance(self._view, Rows):
            raise ParamsError(
                "",
                f"{what}, which the build packed (encode.pack).",
                "Its items are the sequences: take them as they are.",
            )
        raise ParamsError("", f"{what}.", f"Call {method} of the dataset that `open` gives.")

    def _announce(self) -> None:
        """Says to what fetches the files of a remote dataset in which order they will be needed."""
        if (cached := self._view.blocks.cached) is not None:
            cached.set_order(self._groups)

    def _groups_of_parts(self) -> list[list[int]]:
        """The parts in the order in which they are read; those of a group are read together."""
        n_parts = len(self._view.first_items) - 1
        if isinstance(self._order, Order) or (isinstance(self._view, Indexed) and self._has_shuffled_index):
            return [list(range(n_parts))]
        if self._order is None:
            return [[i] for i in range(n_parts)]
        blocks = self._order.blocks
        return self._view.with_ends(blocks) if isinstance(self._view, Windows) else blocks

    @property
    def _has_shuffled_index(self) -> bool:
        return self.manifest.files is not None and self.manifest.files.shuffle is not None

    def _number(self, index: int) -> int:
        """The number of an item in the order of the files."""
        i = operator.index(index)
        if i < 0:
            i += self._n_items
        if not 0 <= i < self._n_items:
            raise self._index_error(index)
        if self._order is None:
            return i
        known, items = self._known
        first = i - i % _POSITIONS
        if known != first:
            self._announce()
            items = self._order.item_at(np.arange(first, min(first + _POSITIONS, self._n_items)))
            self._known = first, items
        return items.item(i - first)

    def _index_error(self, index: int) -> IndexError:
        return IndexError(f"item {index}: expected a number below {self._n_items:,}, the number of items.")


def _key_of(tokens_digest: str, seed: int, epoch: int, names: Sequence[str], name: str | None = None) -> bytes:
    """The key of the order of the items; with a name, of another order that belongs to it."""
    return order_key(tokens_digest, seed, epoch, "/".join([*names, *([] if name is None else [name])]))


def open(
    directory: str | PathLike[str],
    split: str | None = None,
    *,
    source: str | None = None,
    format: str | None = None,
    epoch: int = 0,
    cache: str | PathLike[str] | None = None,
    cache_bytes: int | None = None,
) -> TokenDataset:
    """Opens a token dataset, such as data/tokens. Nothing is read but its manifest and the sizes of its files.

    `directory`: its folder, or the URL that `tokenmill upload` printed: s3://, gs://, az:// or https://. Its files are fetched as
    they are needed, checked by sha256, and kept below the folder `cache` for all processes of the machine. `cache_bytes`: the most
    bytes of the dataset's files at a time; those that are needed last are removed for others. None: no limit. Without `cache`, they
    are in ~/.cache/tokenmill/datasets, up to 100 GB. A file:// URL with `cache` is read in this way, too.

    `split`: one of `encode.splits`, which must be named if the dataset has some; None if it has none. `source`: one of the sources
    that have files of their own; None: all of them, one after another. `format`: one of `encode.formats`; None: the first that is
    there, those that are memory-mapped before parquet, whose row groups are read as they are needed. The items are the same in
    each. `epoch`: the epoch of files that were shuffled for several.

    Raises ValidationError if a file is missing or has another size than the manifest says, ParamsError if there is no such split,
    source, format or epoch, and for a URL with a part larger than `cache_bytes`. Raises StorageError if object
    storage refuses, or has not answered for a minute; reading does so, too, and raises ValidationError for a file that is wrong
    again after it was fetched twice. Digests of files in a folder are not checked: `tokenmill verify` does that.
    """
    remote = remote_dataset(fspath(directory), cache, cache_bytes)
    if remote is not None:
        return open_remote(remote, split, source, format, epoch)
    files = find_files(dataset_folder(fspath(directory)), split, source, format, epoch)
    return _dataset(files, Blocks(files.parts))


def open_remote(
    remote: RemoteDataset,
    split: str | None = None,
    source: str | None = None,
    format: str | None = None,
    epoch: int = 0,
) -> TokenDataset:
    """Opens a dataset that is read where it lies; see `open`."""
    from tokenmill_reader.cache_folder import trim  # takes fcntl, which Windows lacks
    from tokenmill_reader.cached_files import CachedFiles, Fetcher

    fetcher = Fetcher(remote)
    fetcher.ask({"manifest": True})
    files = find_files(remote.folder, split, source, format, epoch, are_here=False)
    cached = CachedFiles(remote, [place.files for place in files.parts.places], fetcher)
    if remote.folder.parent == default_cache():
        needed = sum(file.n_bytes for place in files.parts.places for file in place.files)
        trim(remote.folder, (remote.cache_bytes or 0) - needed)
    return _dataset(files, Blocks(files.parts, cached))


def _dataset(files: DatasetFiles, blocks: Blocks) -> TokenDataset:
    if files.shape.length is None:
        return TokenDataset(files, Documents(blocks), "documents", None)
    pad_id = None if files.manifest.files is None else files.manifest.files.pad_id
    return TokenDataset(files, Rows(blocks, pad_id, files.shape.end_id), "sequences", files.shape.length)
