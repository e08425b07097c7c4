"""Computes from the documents' starts in a sequence what attention, position ids and labels need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenmill_reader.array_types import Ids, Labels, Mask, Starts


NO_LABEL = -100
"""The label that PyTorch's cross entropy ignores (ignore_index)."""


def cu_seqlens(starts: Starts, length: int) -> Starts:
    """The cumulative lengths of the documents of a sequence, as variable-length attention takes them: int32, from 0 to `length`.

    >>> cu_seqlens(np.array([0, 3], np.int32), 5).tolist()
    [0, 3, 5]
    """
    return np.append(starts, np.int32(length))


def positions(starts: Starts, length: int) -> Starts:
    """The position of each id of a sequence in its document, or in the part of it that is there: int32, from 0 at each start.

    >>> positions(np.array([0, 3], np.int32), 5).tolist()
    [0, 1, 2, 0, 1]
    """
    return np.arange(length, dtype=np.int32) - np.repeat(starts, np.diff(cu_seqlens(starts, length)))


def labels(ids: Ids, starts: Starts, loss_mask: Mask | None = None) -> Labels:
    """The ids as labels, int32, with -100 at the first id of each document after the first, which no earlier document can predict.
    Labels are at the places of their ids: a model shifts them by one, as those of transformers do. With `loss_mask`, of
    conversations, they are -100 where it is 0 and at each start.

    >>> labels(np.array([7, 8, 9, 7, 9], np.uint16), np.array([0, 3], np.int32)).tolist()
    [7, 8, 9, -100, 9]
    >>> mask = np.array([0, 0, 1, 0, 1], np.int8)
    >>> labels(np.array([7, 8, 9, 7, 9], np.uint16), np.array([0, 3], np.int32), mask).tolist()
    [-100, -100, 9, -100, 9]
    """
    values = ids.astype(np.int32)
    if loss_mask is not None:
        values[loss_mask == 0] = NO_LABEL
    values[starts[1:] if loss_mask is None else starts] = NO_LABEL
    return values
