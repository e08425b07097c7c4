"""The gates of params.yaml: limits that a build's measures must keep, such as `bytes_per_token.overall >= 4.0`."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenmill.errors import did_you_mean

MEASURES = (
    "bytes_per_token",
    "tokens_per_word",
    "words_whole_share",
    "bigram_bits_per_byte",
    "renyi_efficiency",
    "gini",
    "unused_tokens",
    "unused_tokens_share",
    "rare_tokens_share",
    "unreached_tokens",
    "documents",
    "documents_bad",
    "documents_dropped",
    "tokens",
    "text_bytes",
    "vocab_size",
    "special_texts",
    "trained_share",
)
"""The measures of the report. Some have parts, named after a dot: bytes_per_token.lang.de."""

_OF_GROUPS = ("overall", "source.NAME", "script.NAME", "lang.NAME")
PARTS: Mapping[str, tuple[str, ...]] = {
    "bytes_per_token": _OF_GROUPS,
    "tokens_per_word": _OF_GROUPS,
    "words_whole_share": _OF_GROUPS,
    "renyi_efficiency": ("2", "2_5"),
    "gini": ("languages", "scripts", "sources"),
}
"""The parts of measures that have parts. A gate names one of them."""

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_GATE = re.compile(
    rf"(?P<measure>[^<>=*\s](?:[^<>=*]*[^<>=*\s])?)\s*(?P<sign>>=|<=|==|>|<)\s*(?P<number>{_NUMBER})\s*(?P<of>\*\s*published)?"
)


@dataclass(frozen=True)
class Gate:
    """One gate. `measure`: the name of a measure. `sign`: one of >=, <=, >, <, ==. `is_relative`: whether the limit is `number`
    times the same measure of the last published version."""

    text: str
    measure: str
    sign: str
    number: float
    is_relative: bool

    def holds(self, value: float, published: float | None = None) -> bool:
        """Whether the measure keeps the limit. `published`: the measure of the published version; needed if `is_relative`.

        >>> parse_gate("unused_tokens_share <= 0.02").holds(0.03)
        False
        """
        return _COMPARE[self.sign](value, self.limit(published))

    def limit(self, published: float | None = None) -> float:
        """The number to compare the measure with."""
        if not self.is_relative:
            return self.number
        assert published is not None
        return self.number * published


def parse_gate(text: str) -> Gate:
    """Parses `MEASURE SIGN NUMBER` or `MEASURE SIGN NUMBER * published`. Raises ValueError.

    >>> parse_gate("bytes_per_token.lang.de >= 0.95 * published").measure
    'bytes_per_token.lang.de'
    """
    match = _GATE.fullmatch(text.strip())
    if match is None or not math.isfinite(float(match["number"])):
        raise ValueError(
            f"found {text!r}; allowed: MEASURE SIGN NUMBER, with a sign of {', '.join(_COMPARE)}, like "
            "'bytes_per_token.overall >= 4.0', or with NUMBER * published, like 'bytes_per_token.overall >= 0.95 * published'"
        )
    root, _, part = match["measure"].partition(".")
    if root not in MEASURES:
        hint = did_you_mean(root, MEASURES).rstrip("?").replace(" Did you mean", "; did you mean")
        hint = f"{hint}?" if hint else ""
        raise ValueError(f"found the measure {match['measure']!r} in {text!r}; allowed: {', '.join(MEASURES)}{hint}")
    parts = PARTS.get(root, ("",))
    kind, _, name = part.partition(".")
    if part not in parts and not (name and f"{kind}.NAME" in parts):
        allowed = ", ".join(f"{root}.{one}" if one else root for one in parts)
        raise ValueError(f"found the measure {match['measure']!r} in {text!r}; allowed: {allowed}")
    return Gate(text.strip(), match["measure"], match["sign"], float(match["number"]), match["of"] is not None)
