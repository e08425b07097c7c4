"""Masks by the origin of characters: templates that write earlier answers otherwise than the last one."""

import random
from typing import Any

import pytest

from tests.builders.chats import TURNS, VARIABLES, a_conversation, bare, encoded, encoder, learned, told, without_tags
from tokenmill.chat.conversation import Conversation
from tokenmill.chat.origins import SignedText, followed, has_signs, kept_words
from tokenmill.chat.template import ChatTemplate
from tokenmill.errors import ChatError

THINKING = [
    told("user", "a"),
    told("assistant", "**b**", reasoning_content="c, (c)"),
    told("user", "d"),
    told("assistant", "e!", reasoning_content="f"),
]
THINKS_FIRST = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.reasoning_content and loop.last %}"
    "{{ '<think>\n' + m.reasoning_content + '\n</think>\n' }}{% endif %}{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)


@pytest.mark.parametrize("template", ["qwen3", "deepseek"])
def test_a_template_that_hides_earlier_thinking_trains_what_its_tags_enclose(template: str) -> None:
    chance = random.Random(template)
    n_compared = 0
    for _ in range(40):
        messages, _ = a_conversation(chance, False, template == "qwen3")
        for message in messages:
            if message["role"] == "assistant":
                message["content"] = (message.get("content") or "").strip() or "…"
                if "reasoning_content" not in message and chance.random() < 0.7:
                    message["reasoning_content"] = chance.choice(["so, the cat", "東京 (x)", "…", "12 < 13\n\nthen"])
        messages = [told("user", "the cat"), *(one for one in messages if one["role"] != "system")]
        with_tags = learned(encoder(template=template), messages)
        without = learned(encoder(template=without_tags(template)), messages)
        assert bare(without) == bare(with_tags)
        n_compared += len(with_tags) > 0
    assert n_compared > 25


@pytest.mark.parametrize("template", ["chatml", "llama3", "gemma", "mistral", "qwen3", "deepseek"])
def test_where_the_first_messages_are_a_beginning_their_end_is_found_by_origin_too(template: str) -> None:
    chance = random.Random(template)
    compiled = ChatTemplate(without_tags(template), VARIABLES, "x")
    n_compared = 0
    for _ in range(60):
        messages, _ = a_conversation(chance, False, False)
        messages[0]["content"] = "the cat"
        follow = followed(Conversation(messages, None), kept_words(compiled.looked_for))
        plain, whole = (compiled.marked(some, None, ("", "")) for some in (messages, follow.conversation.messages))
        assert SignedText(whole, follow.sources).difference(plain) is None
        for n in range(1, len(messages)):
            for prompt in (True, False):
                beginning = compiled.marked(follow.conversation.messages[:n], None, ("", ""), prompt)
                if whole.startswith(beginning) and has_signs(beginning):
                    found = SignedText("." + whole, follow.sources).end_of(beginning)
                    assert found == len(beginning) + 1
                    n_compared += 1
    assert n_compared > 60


def test_the_part_of_a_prompt_that_an_answer_begins_with_is_not_learned() -> None:
    """The prompt for an answer opens the thinking, which earlier answers do not have."""
    assert learned(encoder(template=THINKS_FIRST), THINKING) == "**b**<|im_end|>f\n</think>\ne!<|im_end|>"
    assert learned(encoder(template=THINKS_FIRST), TURNS) == "cat<|im_end|>sat<|im_end|>"


def test_filters_and_methods_keep_the_origin() -> None:
    template = THINKS_FIRST.replace(
        "{{ m.content +", "{{ (m.content | trim | replace('x', 'yy')).split('|') | join(', ') ~ '%s' % '' +"
    )
    messages = [*THINKING[:1], told("assistant", " one|Two "), *THINKING[2:]]
    assert learned(encoder(template=template), messages).startswith("one, Two<|im_end|>")
    upper = THINKS_FIRST.replace("m.content +", "m.content | upper +")
    assert learned(encoder(template=upper), THINKING) == "**B**<|im_end|>f\n</think>\nE!<|im_end|>"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("m.content | length ~ m.content", None),
        ("(m.content | replace('b', 'xx'))", None),
        (
            "(m.content if m.content | int(99) == 99 else 'number')",
            r"writes another text at character \d+ \(chat.jinja, line \d\)",
        ),
        ("(m.content | sort | join)", r"writes another text at character \d+ \(chat.jinja, line \d\)"),
        ("(m.content | tojson(ensure_ascii=true))", r"writes another text at character \d+ \(chat.jinja, line \d\)"),
        ("messages[0].content ~ ', ' ~ m.content", r"message 1 \(assistant\): .* or of another message inside it"),
    ],
)
def test_what_loses_its_origin_is_refused_with_the_line_and_what_keeps_it_is_not(
    written: str, words: str | None
) -> None:
    template = THINKS_FIRST.replace("{{ m.content +", "\n\n{{ " + written + " +")
    messages = [told("user", "7"), told("assistant", "dcba", reasoning_content="c"), told("user", "8"), THINKING[3]]
    if words is None:
        assert "</think>" in learned(encoder(template=template), messages)
        return
    with pytest.raises(ChatError, match=words) as caught:
        encoded(encoder(template=template), messages)
    assert caught.value.index == 0


def test_an_earlier_answer_with_another_end_is_refused() -> None:
    """As in templates that end the last answer by another token than the earlier ones."""
    template = THINKS_FIRST.replace(
        "'<|im_end|>\n'", "('</s>' if loop.last and m.role == 'assistant' else '<|im_end|>\n')"
    )
    words = (
        r"up to message 1 \(assistant\) differently on its own than in the whole: at character 51 \(chat.jinja, line"
    )
    with pytest.raises(ChatError, match=words):
        encoded(encoder(template=template), THINKING)
    assert learned(encoder(template=template, mask="last"), THINKING) == "f\n</think>\ne!</s>"


def test_characters_that_signs_are_made_of_are_refused_where_signs_are_needed() -> None:
    messages = [told("user", "\U00100005"), *THINKING[1:]]
    with pytest.raises(ChatError, match=r"characters from U\+100000 on"):
        encoded(encoder(template=without_tags("qwen3")), messages)
    assert learned(encoder(template=without_tags("chatml")), messages).count("<|im_end|>") == 2


def test_a_hostile_message_keeps_its_origin() -> None:
    messages = [told("user", "<|im_end|>"), told("assistant", "<|im_start|>x", reasoning_content="y"), *THINKING[2:]]
    assert learned(encoder(template=without_tags("qwen3")), messages).startswith("<|im_start|>x<|im_end|>")


@pytest.mark.parametrize("arguments", [{}, {"n": 3}, {"n": [True, None, 1.5]}, "{}", "[1]", {"": {}}])
@pytest.mark.parametrize("n_calls", [1, 2])
def test_a_call_without_a_letter_in_its_arguments_keeps_its_origin(arguments: Any, n_calls: int) -> None:
    call = {"type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    called = told("assistant", "", reasoning_content="look", tool_calls=[call] * n_calls)
    results = [told("tool", "", name="get_weather")] * n_calls
    messages = [told("user", "a"), called, *results, told("assistant", "dry"), told("user", "b"), called, *results]
    for template in ("qwen3", "deepseek"):
        found = learned(encoder(template=without_tags(template)), [*messages, *TURNS[1:]])
        assert bare(found) == bare(learned(encoder(template=template), [*messages, *TURNS[1:]]))
        assert found.count("get_weather") == 2 * n_calls


def test_tool_calls_and_results_keep_their_origin() -> None:
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "東京", "days": [1, "two"]}}}
    messages: list[dict[str, Any]] = [
        told("user", "a"),
        told("assistant", "", reasoning_content="look", tool_calls=[call, call]),
        told("tool", '{"sun": true}'),
        told("assistant", "dry", reasoning_content="so"),
        *THINKING[2:],
    ]
    for template in ("qwen3", "deepseek"):
        found = learned(encoder(template=without_tags(template)), messages)
        assert bare(found) == bare(learned(encoder(template=template), messages))
        assert found.count('"city": "東京"') == 2
