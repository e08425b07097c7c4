"""What both formats of packed conversations share: the items they hold, and the position of their loss mask.

Megatron-Bridge makes inputs and labels of a segment by leaving out its last and its first token, and takes the mask at the places
of the inputs (fill_packing_strategy in src/megatron/bridge/data/packing/algorithms.py). So its mask stands one token before ours.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.errors import ValidationError
from tokenmill.format_facts import that_hold_masks
from tokenmill.formats.item_checks import refuse_over_int32
from tokenmill_reader.formats.columns import id_type_of, list_of
from tokenmill_reader.formats.items import REBUILD, Shape

Mask = npt.NDArray[np.int8]


def columns(shape: Shape) -> pa.Schema:
    """The columns that a reader gives; the others follow from these."""
    fields = [list_of("input_ids", id_type_of(shape)), list_of("starts", pa.int32()), list_of("loss_mask", pa.int8())]
    return pa.schema(fields)


def at_inputs(mask: Mask) -> Mask:
    """The mask with each value one token earlier. `mask`: the mask of whole sequences, 0 at each start, so that no value moves into
    another segment.

    >>> at_inputs(np.array([0, 0, 1, 1, 0, 1], np.int8)).tolist()
    [0, 1, 1, 0, 1, 0]
    """
    return np.append(mask[1:], np.zeros(min(mask.size, 1), np.int8))


def at_labels(mask: Mask) -> Mask:
    """The inverse: the mask with each value one token later.

    >>> at_labels(np.array([0, 1, 1, 0, 1, 0], np.int8)).tolist()
    [0, 0, 1, 1, 0, 1]
    """
    return np.append(np.zeros(min(mask.size, 1), np.int8), mask[:-1])


def check_ends(mask: Mask, offsets: npt.NDArray[np.int64], place: Path, n_before: int) -> None:
    """Raises ValidationError if a stored mask is not 0 at the end of an item, after which there is nothing to learn."""
    wrong = mask[offsets[1:] - 1] != 0
    if wrong.any():
        row = n_before + int(np.argmax(wrong))
        raise ValidationError(place, f"item {row:,}: expected a mask of 0 at its last id; found another.", REBUILD)


def refusal(shape: Shape, name: str) -> str | None:
    """Says why a format of packed conversations cannot hold these items, or None."""
    if not shape.has_mask:
        return (
            f"{name} holds conversations with a loss mask; these documents have none. Set encode.chat, or choose another format, "
            "such as megatron"
        )
    if shape.length is None:
        return (
            f"{name} holds packed sequences; set encode.pack with output: rows, or choose "
            f"{that_hold_masks(is_packed=False)}"
        )
    return refuse_over_int32(shape, name)
