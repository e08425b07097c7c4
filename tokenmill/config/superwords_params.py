"""The key train_vocab.superwords of params.yaml."""

from tokenmill.config.section import Section, key


class Superwords(Section):
    """How a vocabulary gets tokens of several words."""

    transition: float = key(
        0.8,
        "the share of the learned tokens that are learned first, within pre-tokens of count.pattern",
        "0.9",
        gt=0,
        lt=1,
    )
    words_max: int = key(
        4, "the most words of the other tokens, which are learned from the counts of count.superwords", "3", ge=2, le=64
    )

    def n_first(self, n_learned: int) -> int:
        """How many of the learned tokens are learned first."""
        return round(self.transition * n_learned)
