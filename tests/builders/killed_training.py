"""A training that is killed after it has saved its state."""

from dataclasses import dataclass

import pyarrow as pa

from tokenmill.training.checkpoint import Checkpoint
from tokenmill.training.learned import MERGE


class Killed(Exception):
    """The training was killed."""


@dataclass(frozen=True)
class Deadly(Checkpoint):
    """Kills the training at its first save after `n_merges` merges."""

    n_merges: int

    def save(self, key: str, words: pa.Table, merges: bytes) -> None:
        """Saves the state, and raises Killed."""
        super().save(key, words, merges)
        if len(merges) >= self.n_merges * MERGE.size:
            raise Killed
