"""Converts the ids that callers pass into what an engine takes."""

from __future__ import annotations

import operator
import reprlib
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from tokenmill.errors import TokenizerError

if TYPE_CHECKING:  # the module imports pyarrow
    from tokenmill.arrow_texts import ArrowArray

Ids: TypeAlias = "Sequence[int] | ArrowArray"
"""The ids of one text: integers, an Arrow array or a numpy array."""
_UINT32_MAX = 2**32 - 1


def plain_ids(ids: Any, id_max: int) -> Any:
    """The ids as a list whose elements are not checked yet, or as an Arrow array of uint16 or uint32 without nulls.

    Raises TypeError for ids that are not integers, and TokenizerError for integers that cannot be ids.
    """
    if isinstance(ids, list):  # first, because it needs no import of pyarrow
        return ids
    if isinstance(ids, _id_arrays()) and not ids.null_count:  # before the slower checks, so short texts decode quickly
        return ids
    import pyarrow as pa

    if isinstance(ids, pa.ListScalar) and ids.is_valid:  # a row of a batch
        ids = ids.values
    expected = (
        "ids: expected a list or an array of integers, of one dimension and in this machine's byte order; found {}."
    )
    try:
        if isinstance(ids, str | bytes | bytearray | Mapping | Set):
            raise TypeError
        if not hasattr(ids, "__arrow_c_array__") and not hasattr(ids, "__array__"):
            return list(ids)
        id_array: Any = ids if isinstance(ids, pa.Array) else pa.array(ids)
    except (pa.ArrowException, TypeError, ValueError, LookupError):
        raise TypeError(expected.format(f"{reprlib.repr(ids):.60}")) from None
    if len(id_array) == 0:
        return pa.array([], pa.uint32())
    if not pa.types.is_integer(id_array.type):
        raise TypeError(expected.format(f"an array of {id_array.type}"))
    if id_array.null_count:
        raise TokenizerError(f"{_expected(id_max)} found a null at {id_array.is_null().index(True)}.")
    if isinstance(id_array, _id_arrays()):
        return id_array
    try:
        return id_array.cast(pa.uint32())
    except pa.ArrowInvalid as error:
        raise refusal(id_array.to_pylist(), id_max, error) from None


def plain_lists(lists: Any, id_max: int) -> Any:
    """An Arrow array of lists of uint16 or uint32. An array of that type is returned as it is, anything else is copied.

    Raises TokenizerError with the number of the list.
    """
    import pyarrow as pa

    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    is_list = isinstance(lists, pa.Array) and (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type))
    if is_list and not lists.null_count:
        items = lists.type.value_type
        if items in (pa.uint16(), pa.uint32()):
            return lists
    try:
        rows = iter(lists)
    except TypeError:
        raise TokenizerError(
            "ids",
            f"expected lists of integers from 0 to {id_max}; found {reprlib.repr(lists):.60} ({type(lists).__name__}).",
        ) from None
    values, ends = array("I"), array("q", [0])
    try:
        for ids in rows:
            plain = plain_ids(ids, id_max)
            if isinstance(plain, list):
                try:
                    values.fromlist(plain)
                except (TypeError, OverflowError) as error:
                    raise refusal(plain, id_max, error) from None
            else:
                values.frombytes(memoryview(plain.cast(pa.uint32()).to_numpy()).cast("B"))
            ends.append(len(values))
    except (TypeError, TokenizerError) as error:
        raise TokenizerError(
            "ids",
            f"expected lists of integers from 0 to {id_max}; list {len(ends) - 1}: {str(error).removeprefix('ids: ')}",
        ) from None
    flat = pa.Array.from_buffers(pa.uint32(), len(values), [None, pa.py_buffer(values)])
    offsets = pa.Array.from_buffers(pa.int64(), len(ends), [None, pa.py_buffer(ends)])
    return pa.LargeListArray.from_arrays(offsets, flat)


def refusal(ids: Iterable[Any], id_max: int, error: Exception) -> Exception:
    """The exception for a list with an element that cannot be an id. `error` is reported if no such element is found."""
    for i, id in enumerate(ids):
        try:
            value = operator.index(id)
        except TypeError:
            return TypeError(f"{_expected(id_max)} found {reprlib.repr(id):.60} ({type(id).__name__}) at {i}.")
        if not 0 <= value <= _UINT32_MAX:
            size = f"{value}" if value.bit_length() <= 64 else f"an integer of {value.bit_length()} bits"
            return TokenizerError(f"{_expected(id_max)} found {size} at {i}, which is negative or beyond 32 bits.")
    return TypeError(f"ids: {error}")


def _expected(id_max: int) -> str:
    return f"ids: expected integers from 0 to {id_max};"


@cache
def _id_arrays() -> tuple[Any, ...]:
    import pyarrow as pa

    return pa.UInt32Array, pa.UInt16Array
