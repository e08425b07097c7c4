"""Masks of templates without generation tags: by what the conversation up to a message begins with."""

import random
from typing import Any

import pytest

from tests.builders.chats import (
    TURNS,
    VARIABLES,
    a_conversation,
    encoded,
    encoder,
    learned,
    tokenizer,
    told,
    without_tags,
)
from tokenmill.chat import prefixes
from tokenmill.chat.segments import SegmentEncoder
from tokenmill.chat.template import ChatTemplate
from tokenmill.errors import ChatError

ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>")


def naive(name: str, template: str, messages: list[dict[str, Any]], tools: Any, mask: str) -> list[int]:
    """The mask by the definition, each rendering encoded on its own; for messages without special tokens. White space behind the
    token that ends a turn is not learned."""
    compiled = ChatTemplate(template, VARIABLES, "x")

    def ids(n: int, prompt: bool) -> tuple[str, list[int]]:
        text = compiled.marked(messages[:n], tools, ("", ""), prompt)
        return text, tokenizer(name).encode(text, special="allow")

    whole_text, whole = ids(len(messages), False)
    found = [0] * len(whole)
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    for i in answers if mask == "assistant" else answers[-1:]:
        before, after = ids(i, True), ids(i + 1, False)
        if not whole_text.startswith(before[0]):
            before = ids(i, False)
        for text, some in (before, after):
            assert whole_text.startswith(text)
            assert whole[: len(some)] == some
        text = after[0].rstrip() if after[0].rstrip().endswith(ENDS) else after[0]
        n_after = len(tokenizer(name).encode(text, special="allow"))
        found[len(before[1]) : n_after] = [1] * (n_after - len(before[1]))
    return found


@pytest.mark.parametrize("mask", ["assistant", "last"])
@pytest.mark.parametrize("template", ["chatml", "llama3", "gemma", "mistral"])
@pytest.mark.parametrize("name", ["plain", "nfc", "rstrip", "lowercase", "prepend"])
def test_masks_are_those_of_the_definition(name: str, template: str, mask: Any) -> None:
    chance = random.Random(f"{name} {template}")
    text = without_tags(template)
    if template == "llama3":  # gpt2's pattern makes one token of two line breaks only where the text ends
        text = text.replace("\\n\\n", "\\n")
    one = encoder(name, text, mask)
    n_compared = 0
    for _ in range(15):
        messages, tools = a_conversation(chance, False, False)
        first = next(i for i, message in enumerate(messages) if message["role"] == "user")
        messages[first]["content"] = "the cat"
        try:
            wanted = naive(name, text, messages, tools, mask)
        except AssertionError:
            with pytest.raises(ChatError, match=r"inside a token|differently"):
                encoded(one, messages)
            continue
        assert encoded(one, messages).loss_mask[0].as_py() == wanted
        n_compared += sum(wanted) > 0
    assert n_compared == 15


def test_what_follows_the_prompt_is_learned() -> None:
    assert learned(encoder(template=without_tags("chatml")), TURNS) == "cat<|im_end|>sat<|im_end|>"
    assert learned(encoder(template=without_tags("chatml"), mask="last"), TURNS) == "sat<|im_end|>"


def test_a_prompt_that_the_template_does_not_write_in_the_conversation_is_left_out() -> None:
    template = without_tags("chatml").replace("<|im_start|>assistant\\n' }}{% endif", "Answer: ' }}{% endif")
    assert learned(encoder(template=template), TURNS[:2]) == "<|im_start|>assistant\ncat<|im_end|>"


def test_masks_of_a_conversation_of_many_messages_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    text = without_tags("chatml")
    messages = [message for _ in range(40) for message in a_conversation(chance, False, False)[0]]
    monkeypatch.setattr(prefixes, "_CHARACTERS_AT_ONCE", 100)
    for name in ("plain", "nfc", "rstrip", "prepend"):
        wanted = naive(name, text, messages, None, "assistant")
        assert encoded(encoder(name, text), messages, messages).loss_mask.to_pylist() == [wanted, wanted]


def test_only_text_behind_the_last_special_token_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    n_characters = []
    encode = SegmentEncoder.encode

    def counted(self: SegmentEncoder, renderings: Any, *owners: Any) -> Any:
        n_characters.append(sum(len(one.text) for one in renderings))
        return encode(self, renderings, *owners)

    monkeypatch.setattr(SegmentEncoder, "encode", counted)
    for hostile in ("", "<|im_end|>"):
        n_characters.clear()
        messages = [told("user", hostile), *TURNS * 100]
        found = encoded(encoder(template=without_tags("chatml")), messages)
        assert sum(n_characters) < 2.5 * len(found.texts[0].as_py())


def test_a_conversation_that_would_be_rendered_too_often_is_refused() -> None:
    turns = [told("user", "x" * 2_000), told("assistant", "y")] * 800
    with pytest.raises(
        ChatError,
        match=r"is learned: 800 times 1,\d\d\d,\d\d\d characters; allowed are 1,000,000,000\. Put {% generation %}",
    ):
        encoded(encoder(template=without_tags("chatml")), turns)
    encoded(encoder(), turns)


def test_weights_and_all_work_by_prefixes_too() -> None:
    weighted = [TURNS[0], {**TURNS[1], "weight": 0}, *TURNS[2:]]
    assert learned(encoder(template=without_tags("chatml")), weighted) == "sat<|im_end|>"
    whole = encoded(encoder(template="chatml"), TURNS).texts[0].as_py()
    assert learned(encoder(template=without_tags("chatml"), mask="all"), TURNS) == whole
    assert learned(encoder(template=without_tags("chatml"), mask="all"), weighted) == whole.replace(
        "cat<|im_end|>\n", ""
    )


def test_a_hostile_message_is_learned_by_prefixes() -> None:
    messages = [told("user", "<|im_end|>"), told("assistant", "<|im_start|>x"), told("user", "<|im_")]
    assert learned(encoder(template=without_tags("chatml")), messages) == "<|im_start|>x<|im_end|>"


def test_a_refusal_quotes_the_text_of_a_message_and_not_what_guards_it() -> None:
    template = "{% for message in messages %}{{ message.content }}{{ messages | length }}{% endfor %}"
    messages = [told("user", "a"), told("assistant", "<|im_start|>"), told("user<|im_end|>", "<|im_end|>")]
    with pytest.raises(ChatError, match=r"'2<\|im_start\|>2' instead of '3<\|im_start\|>3<\|im_end\|>3'"):
        encoded(encoder(template=template), messages)


def test_an_answer_that_begins_inside_a_token_is_refused() -> None:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    one = encoder(template=template)
    assert learned(one, [told("user", "on"), told("assistant", " the")]) == " the"
    with pytest.raises(
        ChatError, match=r"message 1 \(assistant\): it begins inside a token, at character 3 .*\('on ', then 'the'\)"
    ):
        encoded(one, [told("user", "on "), told("assistant", "the")])
    assert learned(one, [told("user", "on\n"), told("assistant", "\n\nthe")]) == "\n\n\nthe"
    with pytest.raises(ChatError, match=r"message 1 \(assistant\): it ends inside a token, at character 3"):
        encoded(one, [told("user", "on"), told("assistant", " "), told("user", "the")])
    assert learned(encoder(template=template, mask="all"), [told("user", "on "), told("assistant", "the")]) == "on the"


def test_a_template_that_refuses_the_first_messages_alone_is_refused() -> None:
    template = "{% if messages | length != 2 %}{{ raise_exception('two, please') }}{% endif %}x"
    with pytest.raises(
        ChatError,
        match=r"message 1 \(assistant\): .*refuses the 1 messages up to there.*two, please \(chat\.jinja, line 1\)\.",
    ):
        encoded(encoder(template=template), TURNS[:2])
