"""Split patterns by name or as a regex: the steps they consist of, and whether `tokenizers` reads them the same way."""

import difflib
import re
from collections.abc import Sequence
from functools import cache

from tokenmill import _core
from tokenmill.errors import PatternError

_NAME = re.compile(r"[A-Za-z0-9_-]+")

_ESCAPES = r"""\\[sSdDnrt] | \\x[0-7][0-9A-Fa-f] | \\x\{[0-9A-Fa-f]+\} | \\u[0-9A-Fa-f]{4} | \\[!-/:;=?@\[-`{-~]
    | \\[pP](?:[LMNPSZC]|\{(?:[LMNPSZC][a-z]?
        |Arabic|Armenian|Cyrillic|Devanagari|Greek|Han|Hangul|Hebrew|Hiragana|Katakana|Latin|Thai)\})"""

# The syntax that means the same in fancy-regex (used by the core and tiktoken) and in Oniguruma (used by tokenizers). These
# differ and are left out: ^ and $ (line ends in Oniguruma), {1,3}+ (not possessive there), {3}? and {,3}, a quantifier after a
# quantifier (Oniguruma repeats it; fancy-regex fails, or reads braces as text), \w and \b (joiners), [[:alpha:]], inner flags.
_ALIKE = re.compile(
    rf"""{_ESCAPES} | \\[zA](?![?*+{{]) | \((?!\?) | \(\?(?:i?:|=|!|<=|<!|>) | (?:[?*+][?+]?|\{{[0-9]+(?:,[0-9]*)?\}})(?![?*+{{])
    | [^\\(\[\]{{}}^$?*+]""",
    re.X | re.S,
)
_ALIKE_IN_CLASS = re.compile(rf"{_ESCAPES} | (?!&&|--|~~)[^\\\[\]]", re.X | re.S)
_N_NAMED_MAX = 64
_CLASS = re.compile(r"\[\^?(?![\]:])")
_ANCHORS = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\])*\]|[$^]", re.S)


def steps_of(pattern: str | None) -> tuple[str, ...]:
    """The regexes that a pattern applies one after another. None has no steps: each document is one pre-token. A regex that
    splits like a named pattern, such as tiktoken's own regex for cl100k, gives that pattern's steps. `$` and `^` become `\\z`
    and `\\A` if tokenizers then reads the regex the same way.

    Raises PatternError for a regex that does not compile, and for an unknown name.

    >>> steps_of("starcoder")[0]
    '\\\\p{N}'
    """
    if pattern is None:
        return ()
    if not isinstance(pattern, str):
        raise PatternError("pattern", f"expected a name, a regex, or None for no split; found {pattern!r:.60}.")
    named = _core.patterns()
    like = next((name for name, regexes in _core.patterns_like().items() if pattern in regexes), pattern)
    if like in named:
        return tuple(named[like])
    if _NAME.fullmatch(pattern):
        close = difflib.get_close_matches(pattern.lower(), named, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise PatternError("pattern", f"unknown name {pattern!r}; expected {', '.join(named)}, or a regex.", hint)
    if not pattern:
        raise PatternError("pattern", "expected a name, a regex, or None for no split; found an empty one.")
    _core.split([pattern], "")
    portable = _ANCHORS.sub(lambda found: {"$": r"\z", "^": r"\A"}.get(found[0], found[0]), pattern)
    return (portable if first_difference([portable]) is None else pattern,)


def names() -> list[str]:
    """The names of the named patterns."""
    return list(_core.patterns())


def name_of(steps: Sequence[str]) -> str | None:
    """The name of the pattern with these steps; None if no named pattern has them."""
    return next((name for name, named in _core.patterns().items() if named == list(steps)), None)


def hard_text(regexes: Sequence[str]) -> str:
    """A text that makes a catastrophically backtracking regex give up: runs of common characters and of the regex's own.

    >>> hard_text(["(x+x+)+y"])[-49:] == "y" * 48 + "!"
    True
    """
    named = sorted({character for regex in regexes for character in regex if character.isalnum()})
    return "".join(f"{character * 48}!" for character in (*" \n.é", *named[:_N_NAMED_MAX]))


def first_difference(steps: Sequence[str]) -> str | None:
    """The first part of the steps that `tokenizers` may read differently; None if both read all steps the same way.

    >>> first_difference([r"\\s+|[^\\s$]+"]), first_difference([r"\\p{N}{1,3}+|\\s+$"])
    (None, '{1,3}+|\\\\s+$')
    """
    if name_of(steps):
        return None
    return next((different for step in steps if (different := _different(step)) is not None), None)


def _different(step: str) -> str | None:
    letters = re.sub(r"\(\?:|[()]", "", step).casefold()
    if "(?i" in step and (folded := next((text for text in _folds() if text in letters), None)):
        return folded
    start, depth = (4 if step.startswith("(?i)") else 0), 0
    while start < len(step):
        if step[start] == "]" and depth:
            start, depth = start + 1, depth - 1
        elif opened := _CLASS.match(step, start):
            start, depth = opened.end(), depth + 1
        elif (alike := (_ALIKE_IN_CLASS if depth else _ALIKE).match(step, start)) and not _is_reversed(alike[0]):
            start = alike.end()
        else:
            return step[start:]
    return None


@cache
def _folds() -> list[str]:
    """Texts that equal one character when case is ignored, as ss equals ß. Only Oniguruma matches one for the other."""
    return sorted({folded for code in range(0x80, 0xFFFF) if len(folded := chr(code).casefold()) > 1})


def _is_reversed(part: str) -> bool:
    """Whether the part is a repetition such as {3,1}, which Oniguruma reads as {1,3}."""
    least, _, most = part.strip("{}").partition(",")
    return part.startswith("{") and most != "" and int(least) > int(most)
