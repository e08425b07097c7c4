"""Ids as callers have them, made what an engine takes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from tokenmill.errors import TokenizerError

if TYPE_CHECKING:  # the compiled module does not have its stub's protocols
    from tokenmill._core import ArrowArray

Ids: TypeAlias = "Sequence[int] | ArrowArray"
"""Ids of one text: integers, an Arrow array, a numpy array."""
_BITS = 32


def plain_ids(ids: Ids) -> Any:
    """A list, or an Arrow array of uint16 or uint32, as the core takes them. Raises TypeError, and OverflowError for integers
    that no id can be."""
    if isinstance(ids, list):  # without pyarrow's import
        return ids
    if isinstance(ids, _id_arrays()):
        return ids
    import pyarrow as pa

    if isinstance(ids, pa.ListScalar) and ids.is_valid:  # a row of a batch
        ids = ids.values
    expected = (
        "ids: expected a list or an array of integers, of one dimension and in this machine's byte order; found {}."
    )
    try:
        if not hasattr(ids, "__arrow_c_array__") and not hasattr(ids, "__array__"):
            return list(ids)
        array: Any = ids if isinstance(ids, pa.Array) else pa.array(ids)
    except (pa.ArrowException, TypeError, ValueError, LookupError):
        raise TypeError(expected.format(f"{ids!r:.60}")) from None
    if isinstance(array, _id_arrays()):
        return array
    if not pa.types.is_integer(array.type) and len(array) > 0:
        raise TypeError(expected.format(f"an array of {array.type}"))
    try:
        return array.cast(pa.uint32())
    except pa.ArrowInvalid:
        raise OverflowError from None


def plain_lists(lists: Any, id_max: int) -> Any:
    """An Arrow array of lists of uint16 or uint32. Raises TokenizerError."""
    import pyarrow as pa

    expected = f"ids: expected lists of integers from 0 to {id_max}"
    try:
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.combine_chunks()
        array: Any = lists if isinstance(lists, pa.Array) else pa.array(lists)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TokenizerError(f"{expected}: {error}") from None
    kind, types = array.type, pa.types
    is_of_lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not ((is_of_lists and (types.is_integer(kind.value_type) or types.is_null(kind.value_type))) or len(array) == 0):
        raise TokenizerError(f"{expected}; found an array of {kind}.")
    if array.null_count:
        raise TokenizerError(f"{expected}; list {array.is_null().index(True)} is null.")
    if is_of_lists and kind.value_type in (pa.uint16(), pa.uint32()) and not types.is_fixed_size_list(kind):
        return array
    try:
        return array.cast(pa.large_list(pa.uint32()))
    except pa.ArrowInvalid as error:
        raise TokenizerError(f"{expected}: {error}.") from None


def wrong_element(ids: Any, id_max: int) -> str | None:
    """What to say of the first element of a list that no id can be."""
    if not isinstance(ids, list | tuple):
        return None
    for i, id in enumerate(ids):
        try:
            value = operator.index(id)
        except TypeError:
            return f"ids: expected integers from 0 to {id_max}; found {id!r:.60} ({type(id).__name__}) at {i}."
        if not 0 <= value < 2**_BITS:
            return (
                f"ids: expected integers from 0 to {id_max}; found {value} at {i}, which is negative or beyond 32 bits."
            )
    return None


@cache
def _id_arrays() -> tuple[type, ...]:
    import pyarrow as pa

    return pa.UInt32Array, pa.UInt16Array
