"""The key train_vocab.superwords of params.yaml."""

from pydantic import Field

from tokenmill.config.record import Record


class Superwords(Record):
    """How a vocabulary gets tokens of several words. `transition`: the share of the learned tokens that are learned first, from
    pre-tokens of count.pattern. The others are learned from those of count.superwords and have at most `words_max` words."""

    transition: float = Field(default=0.8, gt=0, lt=1)
    words_max: int = Field(default=4, ge=2, le=64)

    def n_first(self, n_learned: int) -> int:
        """How many of the learned tokens are learned first."""
        return round(self.transition * n_learned)
