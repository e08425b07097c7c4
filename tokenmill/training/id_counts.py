"""How often each id of a tokenizer is used: by the counts of pre-tokens, or by the table of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.arguments import threads_or_all
from tokenmill.errors import CountsError
from tokenmill.tokenizer.model import encoder_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tokenmill.tokenizer.tokenizer import Tokenizer

    Counts = np.ndarray[tuple[int], np.dtype[np.uint64]]

_SLICE_ROWS = 1 << 18


def ids_in_counts(tokenizer: Tokenizer, counts: pa.Table, threads: int | None = None) -> Counts:
    """The uses of each id in the counted text: uint64, by id. `counts`: a table of pretoken and count, made with the tokenizer's
    own split pattern, of what its `preparation` makes of texts."""
    import numpy as np

    model = tokenizer.model
    assert model is not None
    whole = encoder_of(model.merging_alone())
    uses = np.zeros(tokenizer.id_max + 1, np.uint64)
    for start in range(0, counts.num_rows, _SLICE_ROWS):
        part = counts.slice(start, _SLICE_ROWS).combine_chunks()
        for chunk in part["pretoken"].chunks:
            lists = whole.encode_batch(chunk, threads_or_all(threads))
            times = np.repeat(part["count"].to_numpy(), lists.value_lengths().to_numpy())
            np.add.at(uses, lists.values.to_numpy(), times)
    return uses


def ids_in_dataset(tokenizer: Tokenizer, path: Path) -> Counts:
    """The uses of each id in a dataset: uint64, by id. `path`: its tokens_per_id.parquet. Raises CountsError for a file that cannot
    be read, and for that of another tokenizer."""
    import numpy as np
    import pyarrow as pa

    from tokenmill_reader.checked_parquet import read_table

    try:
        table: Any = read_table(path, partitioning=None)
    except FileNotFoundError:
        raise CountsError(
            path, "missing; expected a tokens_per_id.parquet.", "Take that of data/tables of a dataset."
        ) from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise CountsError(path, f"cannot be read: {error}.", "Take that of data/tables of a dataset.") from None
    digest = (table.schema.metadata or {}).get(b"tokenizer_digest", b"").decode()
    if digest != tokenizer.digest or not {"id", "count"} <= {*table.column_names}:
        raise CountsError(
            path,
            f"expected the counts of the tokenizer {tokenizer.digest}; found those of {digest or 'none'}.",
            "Take the tokens_per_id.parquet of a dataset that this tokenizer encoded.",
        )
    found = np.zeros(tokenizer.id_max + 1, np.uint64)
    found[table["id"].to_numpy()] = table["count"].to_numpy()
    return found
