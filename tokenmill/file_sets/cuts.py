"""Cuts the parts of a file set into further files, so that a set has as many as were asked for."""

import heapq
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple


def cut(n_items: Sequence[int], n_files_min: int | None) -> list[list[range]]:
    """The files of each part, as ranges of the part's items. `n_items`: the number of items of each part.

    There are at least `n_files_min` files with items, or as many as items. The files of a part have equal numbers of items, to
    within one. The part whose files have most items is cut next, together with all parts of the same number, so equal parts have
    equal files.

    >>> cut([10, 5], 3)
    [[range(0, 5), range(5, 10)], [range(0, 5)]]
    >>> cut([3, 3], 3)
    [[range(0, 1), range(1, 3)], [range(0, 1), range(1, 3)]]
    >>> cut([2, 0], 9), cut([2], None)
    ([[range(0, 1), range(1, 2)], [range(0, 0)]], [[range(0, 2)]])
    """
    n_parts = Counter(n_items)
    n_files = dict.fromkeys(n_parts, 1)
    missing = min(n_files_min or 0, sum(n_items)) - sum(n > 0 for n in n_items)
    largest = [(-Fraction(n), n) for n in n_parts]
    heapq.heapify(largest)
    while missing > 0:
        _, n = largest[0]
        n_files[n] += 1
        missing -= n_parts[n]
        heapq.heapreplace(largest, (-Fraction(n, n_files[n]), n))
    return [_even(n, n_files[n]) for n in n_items]


def _even(n_items: int, n_files: int) -> list[range]:
    return [range(a, b) for a, b in pairwise(i * n_items // n_files for i in range(n_files + 1))]


class DocumentFiles(NamedTuple):
    """The files of a set that hold the documents of one part. `first`: the number of the first of them. `bounds`: the number of
    the first document of each file, within the part, and the end."""

    first: int
    bounds: tuple[int, ...]

    @property
    def as_key(self) -> int | list[int]:
        """The value for keys. For a part that is one file it is the file's number."""
        return self.first if len(self.bounds) == 2 else [self.first, *self.bounds]


def document_files(n_documents: Sequence[int], n_files_min: int | None) -> list[DocumentFiles]:
    """The files of documents of each part, for parts of these numbers of documents.

    >>> document_files([10, 5], 3)
    [DocumentFiles(first=0, bounds=(0, 5, 10)), DocumentFiles(first=2, bounds=(0, 5))]
    """
    files = cut(n_documents, n_files_min)
    firsts = accumulate(map(len, files), initial=0)
    return [DocumentFiles(first, (0, *(one.stop for one in some))) for first, some in zip(firsts, files, strict=False)]
