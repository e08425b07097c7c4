"""The policies for texts of special tokens inside documents."""

import re
from collections.abc import Iterable
from typing import Literal, get_args

from tokenmill import _core
from tokenmill.errors import ParamsError, SpecialTokenError

SpecialTokensInText = Literal["as_text", "allow", "reject"]
"""as_text: they are text like any other. allow: they become their ids. reject: they are an error that names the place."""

_N_LISTED = 20

RESERVED = re.compile(r"<\|reserved_(0|[1-9][0-9]*)\|>")
"""The texts of the tokens that fill up a vocabulary, numbered from 0."""

RESERVED_MAX = 1 << 16
"""To no larger multiple is a vocabulary filled up with reserved ones."""


def check_policy(policy: str) -> None:
    """Raises ParamsError for an unknown policy."""
    if policy not in (allowed := get_args(SpecialTokensInText)):
        raise ParamsError(f"special tokens in text: found {policy!r}; allowed: {', '.join(allowed)}.")


def listed(texts: Iterable[str]) -> str:
    """The first of these texts for a message, and how many more there are.

    >>> listed(["<s>", "</s>"]), listed([])
    ("'<s>', '</s>'", 'none')
    """
    found = [*texts]
    shown = ", ".join(f"{text!r:.60}" for text in found[:_N_LISTED]) or "none"
    return shown if len(found) <= _N_LISTED else f"{shown} and {len(found) - _N_LISTED:,} more"


class Refusal:
    """Looks for the texts of special tokens.

    >>> Refusal(["<|end|>"]).check("a <|end|>")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tokenmill.errors.SpecialTokenError: text 0: the special token '<|end|>' stands at byte 2. ...
    """

    def __init__(self, special_tokens: Iterable[str]) -> None:
        self._texts = [*special_tokens]
        self._search = _core.TextFinder(self._texts)

    def check(self, text: str, index: int = 0) -> None:
        """Raises SpecialTokenError with the first place in the text, which has this index among others."""
        if self._search.is_in(text):
            start, _stop, i = self._search.spans(text)[0]
            raise SpecialTokenError(index, len(text[:start].encode()), self._texts[i])
