"""What further settings of learning did to a vocabulary: regexes that refuse tokens, and tokens of several words."""

import json
from collections.abc import Mapping

from pydantic import Field

from tokenmill.config.record import Record

REGEX_KEYS = ("forbid", "protect")


class OfSuperwords(Record):
    """The second phase of learning. `n_tokens_by_words`: how many of its tokens have so many words; "0": white space alone."""

    transition: float
    words_max: int
    n_tokens_by_words: dict[str, int]


class LearnedWith(Record):
    """Which further keys of train_vocab changed the vocabulary, and what they did. `n_refused`: the tokens that `forbid` and
    `protect` refused. `superwords`: null without tokens of several words. Cards from before 0.3 lack it."""

    forbid: list[str] = Field(default=[])
    protect: list[str] = Field(default=[])
    n_refused: int = 0
    superwords: OfSuperwords | None = None

    def rows(self) -> list[tuple[str, str]]:
        """What was used of it, as pairs of a name and words."""
        rows = [(name, json.dumps(of, ensure_ascii=False)) for name in REGEX_KEYS if (of := getattr(self, name))]
        if rows:
            rows.append(("tokens refused", f"{self.n_refused:,}"))
        if self.superwords is not None:
            one = self.superwords
            settings = f"transition {one.transition}, words_max {one.words_max}"
            rows.append(("superwords", f"{settings}: {words_of_superwords(one.n_tokens_by_words)}"))
        return rows


def words_of_superwords(n_tokens_by_words: Mapping[str, int]) -> str:
    """How many tokens the second phase of superwords made, by their words.

    >>> words_of_superwords({"0": 1, "1": 2, "2": 3, "3": 1})
    '4 of the 7 tokens of the second phase have several words (3 of 2, 1 of 3), 2 are within a word, 1 is white space'
    """
    several = {n_words: n for n_words, n in n_tokens_by_words.items() if int(n_words) > 1}
    shares = ", ".join(f"{n:,} of {n_words}" for n_words, n in several.items())
    n_tokens = sum(n_tokens_by_words.values())
    words = f"{sum(several.values()):,} of the {n_tokens:,} tokens of the second phase have several words"
    words += f" ({shares})" if shares else ""
    for n_words, what in (("1", "within a word"), ("0", "white space")):
        if n := n_tokens_by_words.get(n_words, 0):
            words += f", {n:,} {'is' if n == 1 else 'are'} {what}"
    return words
