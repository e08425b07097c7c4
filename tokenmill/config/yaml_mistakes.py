"""Finds the line of a mistake in a YAML file, where the parser only names the line in which it noticed it."""

import re
from typing import Any

_HAS_KEY = re.compile(r"\s*-\s|[^#]*?:(?:\s|$)")  # a line with a key or a list item
_HAS_OPEN_QUOTE = re.compile(
    r"""\s*[^#"']*?:\s+(?:"(?!(?:[^"\\]|\\.)*"\s*(?:\s\#.*)?$)|'(?!(?:[^']|'')*'\s*(?:\s\#.*)?$))"""
)  # a line whose value begins with a quote and does not end with it
_BLOCKS = ("while parsing a block mapping", "while scanning for the next token", "while scanning a simple key")
_OPENED = {  # what is not closed, and whether the line that the parser names helps
    "while scanning a quoted scalar": ("the quote is not closed", False),
    "while scanning a double-quoted scalar": ("the quote is not closed", False),
    "while scanning a simple key": ("expected a key with ': ' after it", False),
    "while parsing a flow sequence": ("the '[' is not closed", True),
    "while parsing a flow mapping": ("the '{' is not closed", True),
}
_BLOCK = "expected <block end>"
_NO_VALUE = "mapping values are not allowed here"


def mistake(text: str, error: Any) -> str:
    """The line of the mistake, from 1, and what is wrong with it. `error`: a YAMLError of ruamel.yaml for `text`.

    >>> from ruamel.yaml import YAML, YAMLError
    >>> text = 'a: [x, y\\nb: 1\\n'
    >>> try:
    ...     YAML(typ="safe", pure=True).load(text)
    ... except YAMLError as error:
    ...     mistake(text, error)
    "line 1: not valid YAML: the '[' is not closed: line 2: expected ',' or ']', but got ':'."
    """
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        position = getattr(error, "position", None)  # for a character that YAML forbids
        place = "" if position is None else f"line {text.count(chr(10), 0, position) + 1}: "
        return f"{place}not valid YAML: {' '.join(str(problem or error).split())}."
    lines = text.split("\n")
    context, start = getattr(error, "context", None), getattr(error, "context_mark", None)
    if start is not None and context in _OPENED and start.line < mark.line:
        what, has_end = _OPENED[context]
        seen = f": line {mark.line + 1}: {problem}" if has_end else ""
        return f"line {start.line + 1}: not valid YAML: {what}{seen}."
    # A quote in a comment or a later line may seem to close it.
    opened = next((i for i in reversed(range(min(mark.line + 1, len(lines)))) if _HAS_OPEN_QUOTE.match(lines[i])), None)
    if opened is not None and (problem == _NO_VALUE or context in _BLOCKS):
        return f"line {opened + 1}: not valid YAML: the quote is not closed, or text follows it."
    head = lines[mark.line][: mark.column] if mark.line < len(lines) else ""
    before = next((i for i in reversed(range(mark.line)) if lines[i].strip() and lines[i].lstrip()[0] != "#"), None)
    if problem == _NO_VALUE or str(problem).startswith(_BLOCK):
        if before is not None and not _HAS_KEY.match(head) and not _HAS_KEY.match(lines[before]):
            return f"line {before + 1}: not valid YAML: expected a key with ': ' after it."
        if problem == _NO_VALUE and _HAS_KEY.match(head):
            problem = "a text with ': ' in it needs quotes"
        else:
            problem = "it does not go on from the line above: see the indentation, quotes and brackets of both"
    return f"line {mark.line + 1}: not valid YAML: {problem or error}."
