"""What of an answer is trained: its reasoning, its content, its calls of tools and the end of the turn."""

from itertools import combinations
from typing import Any, get_args

import pytest

from tests.builders.chats import VARIABLES, bare, encoded, learned, tokenizer, told, without_tags
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import template_text
from tokenmill.chat.rendering import ChatSettings
from tokenmill.config.chat_params import AnswerPart, Chat

CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "東京"}}}
ANSWERS: dict[str, dict[str, Any]] = {
    "all": told("assistant", "**user** (b).", reasoning_content="- c, c!", tool_calls=[CALL]),
    "content": told("assistant", "…"),
    "in the content": told("assistant", "<think>\n(c)\n</think>\n\n[b]"),
    "a call": told("assistant", "", reasoning_content="c", tool_calls=[CALL]),
    "two calls": told("assistant", "b", tool_calls=[{**CALL, "function": {"name": "user", "arguments": {}}}, CALL]),
    "a call without a letter": told("assistant", "b", tool_calls=[{"function": {"name": "user", "arguments": {}}}]),
}
WRITTEN = {
    "all": ("<think>\n- c, c!\n</think>\n\n", "**user** (b).", "calls", "<|im_end|>"),
    "content": ("", "…", "", "<|im_end|>"),
    "in the content": ("<think>\n(c)\n</think>\n\n", "[b]", "", "<|im_end|>"),
    "a call": ("<think>\nc\n</think>\n\n", "", "calls", "<|im_end|>"),
    "two calls": ("", "b", "calls", "<|im_end|>"),
    "a call without a letter": ("", "b", "calls", "<|im_end|>"),
}


def trained(template: str, answer: dict[str, Any], untrained: list[AnswerPart], name: str = "plain") -> str:
    settings = ChatSettings(template, "assistant", VARIABLES, untrained=untrained)
    return learned(ChatEncoder(tokenizer(name), settings, "x"), [told("user", "a"), answer], name)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("tagged", [True, False])
def test_each_part_is_learned_or_not(answer: str, tagged: bool) -> None:
    template = template_text("qwen3") if tagged else without_tags("qwen3")
    whole = bare(trained(template, ANSWERS[answer], []))
    parts = dict(zip(get_args(AnswerPart), map(bare, WRITTEN[answer]), strict=True))
    if parts["tool_calls"]:
        parts["tool_calls"] = whole.removeprefix(parts["reasoning"] + parts["content"]).removesuffix(parts["end"])
        assert parts["tool_calls"].startswith("<tool_call>") and parts["tool_calls"].endswith("</tool_call>")
    assert whole == "".join(parts.values())
    for n in (1, 2, 3):
        for left_out in combinations(parts, n):
            wanted = "".join(text for part, text in parts.items() if part not in left_out)
            assert bare(trained(template, ANSWERS[answer], list(left_out))) == wanted


@pytest.mark.parametrize("name", ["nfc", "metaspace", "lowercase"])
def test_tokens_of_two_parts_are_learned(name: str) -> None:
    template = "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{{ '</s>' }}{% endfor %}"
    answer = told("assistant", "e cat", reasoning_content="th")
    found = trained(template, answer, ["reasoning"], name)
    assert "the" in found and "cat" in found and "</s>" in found


def test_the_marker_of_the_next_role_is_an_end() -> None:
    template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '\n' }}{% endfor %}"
    messages = [told("user", "a"), told("assistant", "b"), told("user", "c")]
    for untrained, wanted in (([], "b\n<|im_start|>"), (["end"], "b\n"), (["content"], "<|im_start|>")):
        settings = ChatSettings(template, "assistant", VARIABLES, train_next=True, untrained=untrained)
        assert (
            learned(ChatEncoder(tokenizer("plain"), settings, "x"), messages).removeprefix("<|im_start|>assistant\n")
            == wanted
        )


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"reasoning": False}, None),
        (dict.fromkeys(get_args(AnswerPart), False), "found every part false"),
        ({"thinking": False}, "thinking"),
    ],
)
def test_params_say_which_parts(train: Any, words: str | None) -> None:
    if words is None:
        assert Chat(template="qwen3", train=train).train.untrained == ["reasoning"]
        with pytest.raises(ValueError, match="found reasoning: false with mask: all"):
            Chat(template="qwen3", mask="all", train=train)
        return
    with pytest.raises(ValueError, match=words):
        Chat(template="qwen3", train=train)


def test_reasoning_that_is_not_learned_may_be_left_out_silently() -> None:
    messages = [
        told("user", "a"),
        told("assistant", "b", reasoning_content="c"),
        told("user", "d"),
        told("assistant", "e"),
    ]
    for untrained, n in (([], 1), (["reasoning"], 0)):
        settings = ChatSettings(template_text("qwen3"), "assistant", VARIABLES, untrained=untrained)
        assert encoded(ChatEncoder(tokenizer("plain"), settings, "x"), messages).counts.n_without_reasoning == n
