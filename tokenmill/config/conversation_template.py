"""Parses source.template, which makes a message of each role from a row's columns."""

import re
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BeforeValidator, Field

TemplateRole = Literal["system", "developer", "user", "assistant"]
"""The roles of messages that a template makes, in the order of these messages."""
ROLES: tuple[str, ...] = (*get_args(TemplateRole), "tool")
"""The roles of messages."""
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")


class TemplatePart(NamedTuple):
    """A part: `texts[0]`, the value of `columns[0]`, `texts[1]`, and so on; it ends with a text."""

    texts: tuple[str, ...]
    columns: tuple[str, ...]


def parse_part(part: str) -> TemplatePart:
    """The texts and columns of a part. Raises ValueError for a brace that neither holds a column nor is doubled.

    >>> parse_part("Input:{input}!")
    TemplatePart(texts=('Input:', '!'), columns=('input',))
    >>> parse_part("{{a}}").texts
    ('{a}',)
    """
    texts, columns, start = [""], [], 0
    for match in _PIECE.finditer(part):
        texts[-1] += part[start : match.start()]
        start = match.end()
        if match[1] is not None:
            columns.append(match[1])
            texts.append("")
        elif len(match[0]) == 2:
            texts[-1] += match[0][0]
        else:
            raise ValueError(
                f"found {part!r:.80} with a single {match[0]} at character {match.start()}; allowed: a column in braces, like "
                "{input}, and {{ or }} for a brace itself"
            )
    texts[-1] += part[start:]
    return TemplatePart(tuple(texts), tuple(columns))


def _as_parts(value: object) -> object:
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(f"found {'null' if value is None else f'{value!r:.80}'}; allowed: a text, or a list of texts")
    for part in parts:
        parse_part(part)
    return parts


def _with_columns_in_order(template: dict[str, list[str]]) -> dict[str, list[str]]:
    if not any(parse_part(part).columns for parts in template.values() for part in parts):
        raise ValueError("found no column; allowed: parts with columns in braces, like {instruction}")
    # The file's order does not count, because DVC does not see a change of it, and writers of YAML sort keys.
    return dict(sorted(template.items(), key=lambda item: ROLES.index(item[0])))


Template = Annotated[
    dict[TemplateRole, Annotated[list[str], BeforeValidator(_as_parts)]],
    Field(min_length=1),
    AfterValidator(_with_columns_in_order),
]
"""The parts of each role's message, in the order of ROLES. A part is a text with columns in braces."""
