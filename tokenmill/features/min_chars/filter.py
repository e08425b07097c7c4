"""The filter that leaves documents out which have fewer characters than source.min_chars."""

from dataclasses import dataclass

import pyarrow.compute as pc

from tokenmill.corpus.filter import Left
from tokenmill.corpus.reader import Batch

NAME = "min_chars"


@dataclass(frozen=True)
class MinChars:
    """Leaves out documents with fewer than `n` characters, which are Unicode code points of the text that `count` counts. Raises
    ValueError for `n` below 1.

    >>> import pyarrow as pa
    >>> MinChars(2).left_out("a.jsonl", Batch(0, pa.array(["é", "e\u0301", ""], pa.large_string()), None))
    {0: Left(reason='min_chars', by='min_chars'), 2: Left(reason='min_chars', by='min_chars')}
    """

    n: int

    def __post_init__(self) -> None:
        if type(self.n) is not int or self.n < 1:
            raise ValueError("expected a whole number of characters, 1 or more")

    def as_key(self) -> int:
        """The least number of characters (see Filter)."""
        return self.n

    def left_out(self, shard: str, batch: Batch) -> dict[int, Left]:
        """The short documents of a batch (see Filter)."""
        is_short = pc.less(pc.utf8_length(batch.texts), self.n)
        return dict.fromkeys(pc.indices_nonzero(is_short).to_pylist(), Left(NAME, NAME))
