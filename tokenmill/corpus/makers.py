"""Chooses how rows of a source become conversations."""

from tokenmill.config.sources import Column, Conversations
from tokenmill.corpus.conversations import Maker, by_template, of_messages
from tokenmill.corpus.pairs import of_pair


def maker_of(conversations: Conversations) -> Maker:
    """The maker of a source's conversations.

    Its values are JSON values; with a template, each is a text or None.
    """
    if conversations.template is not None:
        names, make = by_template(conversations.template)
        return Maker(tuple(Column(name, "template") for name in names), make)
    tools = () if conversations.tools_column is None else (Column(conversations.tools_column, "tools_column"),)
    if (pair := conversations.pair) is not None:
        sides = [name for name in (pair.prompt, pair.chosen, pair.rejected) if name is not None]
        n_before = len(sides) - 2  # the prompt, if there is one
        return Maker(
            (*(Column(name, "pair") for name in sides), *tools),
            lambda values: of_pair(
                (values[0] or []) if n_before else None,
                values[n_before],
                values[n_before + 1],
                values[n_before + 2] if tools else None,
            ),
        )
    assert conversations.column is not None
    return Maker(
        (Column(conversations.column, "messages_column"), *tools),
        lambda values: of_messages(values[0], values[1] if tools else None),
    )
