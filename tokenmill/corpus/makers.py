"""Chooses how rows of a source become conversations."""

from tokenmill.config.sources import Conversations
from tokenmill.corpus.conversations import Maker, by_template, of_messages
from tokenmill.corpus.pairs import of_pair


def maker_of(conversations: Conversations) -> Maker:
    """The maker of a source's conversations.

    Its values are JSON values; with a template, each is a text or None.
    """
    if conversations.template is not None:
        columns, make = by_template(conversations.template)
        return Maker(columns, ("template",) * len(columns), make)
    tools = () if conversations.tools_column is None else (conversations.tools_column,)
    of_tools = ("tools_column",) * len(tools)
    if (pair := conversations.pair) is not None and pair.prompt is not None:
        return Maker(
            (pair.prompt, pair.chosen, pair.rejected, *tools),
            ("pair", "pair", "pair", *of_tools),
            lambda values: of_pair(values[0] or [], values[1], values[2], values[3] if tools else None),
        )
    if pair is not None:
        return Maker(
            (pair.chosen, pair.rejected, *tools),
            ("pair", "pair", *of_tools),
            lambda values: of_pair(None, values[0], values[1], values[2] if tools else None),
        )
    assert conversations.column is not None
    return Maker(
        (conversations.column, *tools),
        ("messages_column", *of_tools),
        lambda values: of_messages(values[0], values[1] if tools else None),
    )
