"""What becomes of the texts of special tokens inside documents."""

import re
from collections.abc import Iterable
from typing import Literal, get_args

from tokenmill.errors import ParamsError, SpecialTokenError

SpecialTokensInText = Literal["as_text", "allow", "reject"]
"""as_text: they are text like any other. allow: they become their ids. reject: they are an error that names the place."""

RESERVED_MAX = 1 << 16
"""To no larger multiple is a vocabulary filled up with reserved ones."""


def check_policy(policy: str) -> None:
    """Raises ParamsError for what is no such policy."""
    if policy not in (allowed := get_args(SpecialTokensInText)):
        raise ParamsError(f"special tokens in text: found {policy!r}; allowed: {', '.join(allowed)}.")


class Refusal:
    """Looks for the texts of special tokens.

    >>> Refusal(["<|end|>"]).check("a <|end|>")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tokenmill.errors.SpecialTokenError: text 0: the special token '<|end|>' stands at byte 2. ...
    """

    def __init__(self, special_tokens: Iterable[str]) -> None:
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._search = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def check(self, text: str, index: int = 0) -> None:
        """Raises SpecialTokenError with the first place in the text, which has this index among others."""
        if found := self._search.search(text):
            raise SpecialTokenError(index, len(text[: found.start()].encode()), found[0])
