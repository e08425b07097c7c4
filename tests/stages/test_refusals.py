"""The error for a refused conversation says of how many the template refuses, by shape and reason."""

from typing import Any

import pyarrow as pa

from tests.builders.chats import TOOLS, canonical, encoder, told
from tokenmill.corpus.reader import Batch
from tokenmill.errors import ChatError
from tokenmill.stages.refusals import refused_in

TEMPLATE = (
    "{% if tools %}{{ raise_exception('no tools, but ' ~ tools | length) }}{% endif %}"
    "{% for m in messages %}{% if m.content == 'odd' %}{{ raise_exception(\"'\" ~ loop.index ~ \"' is odd\") }}{% endif %}"
    "{{ m.role }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}{% else %}{{ m.content }}"
    "{% endif %}{% endfor %}"
)
PLAIN = [told("user", "a"), told("assistant", "b")]
ODD = [told("user", "odd"), told("assistant", "b")]
LATE = [*PLAIN, told("user", "odd"), told("assistant", "b", reasoning_content="c")]
BRIEF = [told("system", "d"), *PLAIN]


def refused(*rows: tuple[list[dict[str, Any]], Any]) -> str:
    """The message for the first row that is refused."""
    chat = encoder(template=TEMPLATE)
    messages = pa.array([canonical(*row) for row in rows], pa.large_string())
    try:
        chat.encode_batch(messages)
    except ChatError as error:
        return str(refused_in(chat, Batch(10, messages, None, messages=messages), "a.jsonl", error))
    raise AssertionError("no row is refused")


def test_refused_conversations_are_counted_by_shape_and_reason() -> None:
    first, *lines = refused(
        (PLAIN, None), (ODD, None), (PLAIN, None), (BRIEF, TOOLS), (LATE, None), *[(PLAIN, None)] * 70, (ODD, None)
    ).splitlines()
    assert first == "a.jsonl, row 11: the chat template refuses it: '1' is odd (chat.jinja, line 1)."
    assert lines == [
        "Of the 75 conversations from there on that were tried, 4 are refused:",
        "  2 of 73 with one turn, the first in row 11: the chat template refuses it: … is odd (chat.jinja, line …).",
        "  1 of 1 with one turn, a system message, tools, the first in row 13: the chat template refuses it: no tools, "
        "but … (chat.jinja, line …).",
        "  1 of 1 with many turns, reasoning, the first in row 14: the chat template refuses it: … is odd (chat.jinja, "
        "line …).",
    ]


def test_one_refused_conversation_is_named_alone() -> None:
    assert len(refused((PLAIN, None), (ODD, None), (PLAIN, None)).splitlines()) == 1
