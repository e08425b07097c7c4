"""Pre-tokens as lists of places: the places of their tokens in the order of ids, by which the core learns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenmill.arguments import threads_or_all
from tokenmill.tokenizer.model import Model, encoder_of


def place_encoder(model: Model, threads: int | None) -> Callable[[Any], Any]:
    """What encodes an Arrow array of pre-tokens as large_list<uint32>. Neither a split pattern nor special tokens apply."""
    import numpy as np
    import pyarrow as pa

    alone = model.merging_alone()
    ids = sorted(alone.tokens)
    place_of = np.zeros(ids[-1] + 1, np.uint32)
    place_of[ids] = np.arange(len(ids))
    whole = encoder_of(alone)
    n_threads = threads_or_all(threads)

    def places_of(pretokens: Any) -> Any:
        lists = whole.encode_batch(pretokens, n_threads)
        return pa.LargeListArray.from_arrays(lists.offsets, pa.array(place_of[lists.values.to_numpy()], pa.uint32()))

    return places_of
