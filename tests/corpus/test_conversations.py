"""Messages of both shapes, and templates, give one canonical JSON; what makes no conversation is refused with its reason."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tokenmill.config.sources import Conversations
from tokenmill.corpus.conversations import CanonicalConversation, ConversationError, of_messages
from tokenmill.corpus.makers import maker_of

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ALPACA = (("user", ("{instruction}", "Input:\n{input}")), ("assistant", ("{output}",)))


def by_template(template: Any, **row: str | None) -> CanonicalConversation:
    maker = maker_of(Conversations(None, None, template))
    return maker.make([row[column.name] for column in maker.columns])


def messages_of(found: CanonicalConversation) -> list[Any]:
    whole: dict[str, list[Any]] = json.loads(found.json)
    return whole["messages"]


def test_both_shapes_give_the_same_json_and_text() -> None:
    openai = [
        {"role": "system", "content": "Be brief."},
        {"content": "2 + 2?", "role": "user"},
        {"role": "assistant", "content": "4"},
    ]
    sharegpt = [
        {"from": "system", "value": "Be brief."},
        {"value": "2 + 2?", "from": "human"},
        {"from": "gpt", "value": "4"},
    ]
    expected = (
        b'{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"2 + 2?"},'
        b'{"role":"assistant","content":"4"}]}'
    )
    for messages in (openai, sharegpt, json.dumps(openai), json.dumps(sharegpt).encode()):
        assert of_messages(messages, None) == (expected, "Be brief.\n2 + 2?\n4")


@pytest.mark.parametrize(
    ("speaker", "role"),
    [
        ("human", "user"),
        ("user", "user"),
        ("gpt", "assistant"),
        ("assistant", "assistant"),
        ("system", "system"),
        ("function_call", "assistant"),
        ("observation", "tool"),
        ("tool", "tool"),
    ],
)
def test_every_speaker_of_sharegpt_has_a_role(speaker: str, role: str) -> None:
    found = of_messages([{"from": speaker, "value": 'é\n"', "weight": 0}], None)
    assert found.json == f'{{"messages":[{{"role":"{role}","content":"é\\n\\"","weight":0}}]}}'.encode()


def test_other_keys_follow_role_and_content_in_their_order_without_those_that_are_null() -> None:
    message = {"weight": 1, "name": None, "tool_calls": [CALL], "role": "assistant", "content": None}
    assert messages_of(of_messages([message], None)) == [{"role": "assistant", "weight": 1, "tool_calls": [CALL]}]
    assert list(messages_of(of_messages([message], None))[0]) == ["role", "weight", "tool_calls"]


def test_a_null_inside_a_value_of_a_message_or_in_a_tool_stays() -> None:
    arguments = {"city": "x", "unit": None, "days": [1.5, None]}
    answer = {"role": "assistant", "tool_calls": [{"id": None, "function": {"name": "f", "arguments": arguments}}]}
    tools = [{"name": "f", "parameters": {"unit": {"type": "string", "default": None}}, "strict": None}]
    expected = (
        b'{"messages":[{"role":"assistant","tool_calls":[{"id":null,"function":{"name":"f","arguments":{"city":"x",'
        b'"unit":null,"days":[1.5,null]}}}]}],'
        b'"tools":[{"name":"f","parameters":{"unit":{"type":"string","default":null}},"strict":null}]}'
    )
    assert of_messages([answer], tools).json == expected
    assert of_messages(json.dumps([answer]), json.dumps(tools)).json == expected


def test_an_answer_of_calls_alone_needs_no_content_and_adds_no_text() -> None:
    messages = [
        USER,
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    ]
    found = of_messages(messages, None)
    assert messages_of(found) == messages
    assert found.text == "Hi\n3"


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_has_one_key_and_is_part_of_the_text_behind_the_content(key: str) -> None:
    answer = {"role": "assistant", "a": 1, key: "Greet.", "content": "Hello", "b": 2}
    for message in (answer, answer | {"reasoning": "Greet.", "thinking": "Greet."}):
        found = of_messages([USER, message], None)
        assert found.text == "Hi\nHello\nGreet."
        assert messages_of(found)[1] == {
            "role": "assistant",
            "content": "Hello",
            "a": 1,
            "reasoning_content": "Greet.",
            "b": 2,
        }
        assert list(messages_of(found)[1]) == ["role", "content", "a", "reasoning_content", "b"]


def test_reasoning_beside_calls_alone_is_text_and_that_of_sharegpt_too() -> None:
    call = {"role": "assistant", "thinking": "Add.", "tool_calls": [CALL]}
    found = of_messages([USER, call], None)
    assert (found.text, list(messages_of(found)[1])) == ("Hi\nAdd.", ["role", "reasoning_content", "tool_calls"])
    assert of_messages([{"from": "gpt", "value": "a", "thinking": "b"}], None).text == "a\nb"


def test_a_list_of_texts_as_content_is_joined() -> None:
    content = [{"type": "text", "text": "a"}, {"text": "b", "type": "text", "image_url": None}]
    assert messages_of(of_messages([{"role": "user", "content": content}], None)) == [{"role": "user", "content": "ab"}]
    assert messages_of(of_messages([{"role": "user", "content": []}], None)) == [{"role": "user", "content": ""}]


@pytest.mark.parametrize("tools", [[{"name": "f", "x": None, "n": 1}], '[{"name": "f", "x": null, "n": 1}]'])
def test_tools_stand_behind_the_messages(tools: Any) -> None:
    expected = b'{"messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"f","x":null,"n":1}]}'
    assert of_messages([USER], tools).json == expected


@pytest.mark.parametrize("tools", [None, [], "[]"])
def test_no_tools_leave_no_trace(tools: Any) -> None:
    assert of_messages([USER], tools).json == b'{"messages":[{"role":"user","content":"Hi"}]}'


BAD: dict[str, tuple[Any, Any, str]] = {
    "no list": (None, None, "messages: expected a list, or its JSON text; found null"),
    "an object": ({}, None, "messages: expected a list, or its JSON text; found an object"),
    "text that is no JSON": ("Hi", None, "messages: expected the JSON text of a list; found a text that is not JSON: "),
    "JSON of no list": ('"Hi"', None, "messages: expected a list, or its JSON text; found a text"),
    "no messages": ([], None, "expected messages; found an empty list"),
    "a message that is a text": ([USER, "Hi"], None, "message 1: expected an object; found a text"),
    "a null message": ([None], None, "message 0: expected an object; found null"),
    "no role": (
        [{"content": "Hi", "speaker": "me", "role": None}],
        None,
        "message 0: expected the keys role and content, or from and value; found the keys content, speaker",
    ),
    "no keys": ([{}], None, "or from and value; found the keys (none)"),
    "an unknown role": (
        [USER, {"role": "bot", "content": "x"}],
        None,
        "message 1: role: expected one of system, developer, user, assistant, tool; found 'bot'",
    ),
    "a role that is a list": ([{"role": ["user"], "content": "x"}], None, "message 0: role: expected one of"),
    "an unknown speaker": ([{"from": "me", "value": "x"}], None, "message 0: from: expected one of system, human, "),
    "no value": ([{"from": "human", "text": "x"}], None, "message 0: value: expected a text; found null"),
    "a value that is a list": (
        [{"from": "human", "value": []}],
        None,
        "message 0: value: expected a text; found a list",
    ),
    "both shapes": ([{"from": "human", "content": "x"}], None, "message 0: expected the key value beside from"),
    "no content": (
        [USER, {"role": "assistant", "content": None}],
        None,
        "message 1: content: expected a text, or tool_calls beside it; found none",
    ),
    "no content beside no calls": (
        [{"role": "assistant", "tool_calls": []}],
        None,
        "message 0: content: expected a text, or tool_calls",
    ),
    "a number as content": ([{"role": "user", "content": 7}], None, "message 0: content: expected a text, or a list"),
    "an image": (
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}],
        None,
        'message 0: content 1: expected {"type": "text", "text": a text}; found the type \'image_url\'',
    ),
    "a content of texts": ([{"role": "user", "content": ["a"]}], None, "message 0: content 0: expected"),
    "calls as text": (
        [{"role": "assistant", "content": "", "tool_calls": "[]"}],
        None,
        "message 0: tool_calls: expected a list of objects; found a text",
    ),
    "reasoning that is no text": (
        [{"role": "assistant", "content": "x", "reasoning_content": ["y"]}],
        None,
        "message 0: reasoning_content: expected a text; found a list",
    ),
    "thinking that is no text": (
        [{"role": "assistant", "content": "x", "thinking": True}],
        None,
        "message 0: thinking: expected a text; found a bool",
    ),
    "two reasonings": (
        [USER, {"role": "assistant", "content": "x", "thinking": "y", "reasoning": "z"}],
        None,
        "message 1: expected one reasoning; found different ones in thinking and reasoning",
    ),
    "a number that JSON lacks": (
        [{"role": "user", "content": "x", "weight": float("nan")}],
        None,
        "message 0: expected numbers that JSON has; found nan",
    ),
    "a tool that is a text": ([USER], ["f"], "tool 0: expected an object; found a text"),
    "tools that are no list": ([USER], {}, "tools: expected a list, or its JSON text; found an object"),
    "deep nesting": (
        "[" * 10**5 + "]" * 10**5,
        None,
        "messages: expected at most 100 levels of lists and objects; found more",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_conversation_is_refused_with_message_expected_and_found(case: str) -> None:
    messages, tools, expected = BAD[case]
    with pytest.raises(ConversationError) as error:
        of_messages(messages, tools)
    assert expected in str(error.value)
    assert len(str(error.value)) < 200


def nested(n_levels: int) -> Any:
    """An object with lists in lists: so many levels of both."""
    value: Any = 1
    for _ in range(n_levels - 1):
        value = [value]
    return {"x": value}


def deeply_called(n_calls: int, function: Callable[[], Any]) -> Any:
    return function() if n_calls == 0 else deeply_called(n_calls - 1, function)


@pytest.mark.parametrize("n_calls", [0, 500])
def test_a_hundred_levels_can_be_read_and_one_more_is_refused_whatever_calls_led_there(n_calls: int) -> None:
    for n_levels in (100, 101, 200, 400):
        for messages, tools, where in (
            ([USER | nested(n_levels)], None, "message 0"),
            ([USER], [nested(n_levels)], "tool 0"),
            ([USER], json.dumps([nested(n_levels)]), "tool 0"),
        ):
            if n_levels == 100:
                assert b"[" * 98 in deeply_called(n_calls, lambda: of_messages(messages, tools)).json  # noqa: B023
                continue
            with pytest.raises(ConversationError) as error:
                deeply_called(n_calls, lambda: of_messages(messages, tools))  # noqa: B023
            assert str(error.value) == f"{where}: expected at most 100 levels of lists and objects; found more"


def test_a_template_leaves_out_parts_and_messages_whose_columns_are_empty() -> None:
    whole = by_template(ALPACA, instruction="Add", input="1, 2", output="3")
    assert messages_of(whole) == [
        {"role": "user", "content": "Add\n\nInput:\n1, 2"},
        {"role": "assistant", "content": "3"},
    ]
    assert whole.text == "Add\n\nInput:\n1, 2\n3"
    for empty in ("", None):
        found = messages_of(by_template(ALPACA, instruction="Add", input=empty, output=empty))
        assert found == [{"role": "user", "content": "Add"}]


def test_a_part_with_one_of_its_columns_stays_and_one_without_columns_always_does() -> None:
    template = (("system", ("Be brief.",)), ("user", ("{a} and {b}", "{b}")))
    assert messages_of(by_template(template, a="x", b=None)) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "x and "},
    ]


def test_braces_and_percent_signs_of_a_template_and_of_values_stay_as_they_are() -> None:
    template = (("user", ("{{{a}}} 100 % %s {{b}}",)),)
    found = messages_of(by_template(template, a="{b} %s {{"))
    assert found == [{"role": "user", "content": "{{b} %s {{} 100 % %s {b}"}]


def test_a_row_without_any_value_makes_no_conversation() -> None:
    template = (("system", ("Be brief.",)), *ALPACA)
    with pytest.raises(ConversationError, match="expected a text in one of instruction, input, output; found none"):
        by_template(template, instruction=None, input="", output="")
