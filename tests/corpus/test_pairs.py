"""Rows with a prompt and two answers, and what makes no pair."""

import json
from typing import Any

import pytest

from tokenmill.corpus.conversations import ConversationError
from tokenmill.corpus.pairs import of_pair

USER, YES, NO = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes"},
    {"role": "assistant", "content": "No"},
)
PAIR = {"messages": [USER, YES], "rejected": NO}


@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected"),
    [
        ("Hi", "Yes", "No"),
        ([USER], [YES], [NO]),
        ([USER], "Yes", [NO]),
        (None, [USER, YES], [USER, NO]),
        ("Hi", YES, NO),
        ([USER], YES, "No"),
        (USER, YES, [NO]),
        ({"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}, NO),
        ("Hi", {**YES, "tool_calls": None}, NO),
        (None, [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}], [USER, NO]),
    ],
)
def test_the_forms_of_a_pair_give_the_same(prompt: Any, chosen: Any, rejected: Any) -> None:
    assert json.loads(of_pair(prompt, chosen, rejected, None).json) == PAIR


def test_a_history_and_tools_belong_to_both_sides() -> None:
    tools = [{"name": "weather"}]
    found = of_pair(None, [USER, YES, USER, YES], [USER, YES, USER, NO], tools)
    assert json.loads(found.json) == {"messages": [USER, YES, USER, YES], "rejected": NO, "tools": tools}
    assert found.text == "Hi\nYes\nHi\nYes\nHi\nYes\nHi\nNo"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("Hi", "Yes", " Yes\n"), "chosen and rejected: expected two answers; found the same twice"),
        ((None, [USER, YES], [USER, YES]), "chosen and rejected: expected two answers; found the same twice"),
        (("Hi", " ", "No"), "chosen: expected an answer; found an empty one"),
        ((None, [USER, YES], [USER]), "chosen: expected one message of the assistant behind the prompt; found user"),
        (
            (None, [USER, YES], [USER, YES, USER, NO]),
            "rejected: expected one message of the assistant behind the prompt; found",
        ),
        ((None, [YES], [NO]), "chosen and rejected: expected the same messages before both answers; found none"),
        (
            ("Hi", [USER, YES], "No"),
            "chosen: expected one message of the assistant behind the prompt; found user, assistant. If chosen begins with "
            "the prompt, set pair.prompt to null",
        ),
        ((None, "Yes", "No"), "chosen: expected a list of messages that begins with the prompt; found a text"),
        (("Hi", None, "No"), "chosen: expected a text, a message or a list of messages; found nothing"),
        ((None, YES, NO), "chosen: expected a list of messages that begins with the prompt; found one message"),
        (("Hi", {}, NO), "chosen: expected a text, a message or a list of messages; found nothing"),
        (("Hi", USER, NO), "chosen: expected one message of the assistant behind the prompt; found user"),
        (([], "Yes", "No"), "prompt: expected a text, a message or a list of messages; found nothing"),
        (("Hi", [{"role": "bot", "content": "x"}], "No"), "chosen: message 1: role: expected one of"),
    ],
)
def test_what_makes_no_pair_says_why(values: tuple[Any, Any, Any], words: str) -> None:
    with pytest.raises(ConversationError) as caught:
        of_pair(*values, None)
    assert str(caught.value).startswith(words)
