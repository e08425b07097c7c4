"""The named templates write what their formats say."""

from typing import Any

import pytest

from tests.builders.chats import NOT_SPECIAL, SPECIAL, TOOLS, VARIABLES, told
from tokenmill.chat.named import NAMED, template_text
from tokenmill.chat.template import ChatTemplate, regions
from tokenmill.errors import TemplateError

SYSTEM = told("system", "S")
TURN = [told("user", "Q"), told("assistant", "A")]
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "東京"}}}
CALLS = [
    told("user", "Q"),
    {"role": "assistant", "tool_calls": [CALL]},
    told("tool", "R", tool_call_id="c1"),
    told("assistant", "A"),
]
SCHEMA = (
    '{"type": "function", "function": {"name": "weather", "description": "The weather – of a city.", "parameters": {"type": '
    '"object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}'
)


def shown(name: str, messages: list[dict[str, Any]], tools: Any = None, prompt: bool = False, **variables: Any) -> str:
    """The rendered text, with ‹› around what is generated."""
    template = ChatTemplate(template_text(name), {**VARIABLES, **variables}, name)
    return template.marked(messages, tools, ("‹", "›"), prompt)


def test_chatml() -> None:
    assert shown("chatml", [SYSTEM, *TURN]) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n‹A<|im_end|>›\n"
    )
    assert shown("chatml", [TURN[0]], prompt=True) == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"


def test_llama3() -> None:
    assert shown("llama3", [SYSTEM, *TURN, told("user", " R ")]) == (
        "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n‹A<|eot_id|>›<|start_header_id|>user<|end_header_id|>\n\nR<|eot_id|>"
    )
    assert shown("llama3", CALLS[1:], prompt=True) == (
        '<s><|start_header_id|>assistant<|end_header_id|>\n\n‹{"name": "weather", "parameters": {"city": "東京"}}<|eot_id|>›'
        "<|start_header_id|>ipython<|end_header_id|>\n\nR<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n‹A<|eot_id|>›<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    with_tools = shown("llama3", [*TURN, *TURN], TOOLS)
    assert with_tools.count('"name": "weather"') == 1
    assert with_tools.index('"name": "weather"') < with_tools.index("\n\nQ<|eot_id|>")


def test_qwen3() -> None:
    assert shown("qwen3", [SYSTEM, *TURN]) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n‹A<|im_end|>›\n"
    )
    thinking = [told("user", "Q"), told("assistant", "A", reasoning_content="T")]
    assert shown("qwen3", thinking) == (
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n‹<think>\nT\n</think>\n\nA<|im_end|>›\n"
    )
    assert shown("qwen3", [told("user", "Q"), told("assistant", "<think>\nT\n</think>\n\nA")]) == shown(
        "qwen3", thinking
    )
    assert shown("qwen3", [*thinking, *TURN]) == (
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n‹A<|im_end|>›\n"
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n‹A<|im_end|>›\n"
    )
    assert shown("qwen3", TURN[:1], prompt=True).endswith("<|im_start|>assistant\n")
    without = shown("qwen3", TURN[:1], prompt=True, enable_thinking=False)
    assert without.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_qwen3_with_tools() -> None:
    text = shown("qwen3", [SYSTEM, *CALLS], TOOLS)
    head, rest = text.split("<|im_end|>\n", 1)
    assert head.startswith("<|im_start|>system\nS\n\n# Tools\n\n")
    assert f"<tools>\n{SCHEMA}\n</tools>" in head
    assert rest == (
        '<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n‹<tool_call>\n{"name": "weather", "arguments": {"city": "東京"}}\n'
        "</tool_call><|im_end|>›\n<|im_start|>user\n<tool_response>\nR\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n‹A<|im_end|>›\n"
    )
    two = shown("qwen3", [told("user", "Q"), {"role": "assistant", "content": "A", "tool_calls": [CALL, CALL]}])
    assert two.count("<tool_call>\n") == 2 and "‹A\n<tool_call>" in two and "</tool_call>\n<tool_call>" in two
    results = shown("qwen3", [told("user", "Q"), told("tool", "R"), told("tool", "R"), told("assistant", "A")])
    assert results.count("<|im_start|>user") == 2


def test_mistral() -> None:
    assert shown("mistral", [SYSTEM, *TURN, *TURN]) == (
        "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]Q[/INST]‹A</s>›[INST]Q[/INST]‹A</s>›"
    )
    assert shown("mistral", CALLS, TOOLS) == (
        f"<s>[AVAILABLE_TOOLS][{SCHEMA}][/AVAILABLE_TOOLS][INST]Q[/INST]"
        '‹[TOOL_CALLS][{"name": "weather", "arguments": {"city": "東京"}, "id": "c1"}]</s>›'
        '[TOOL_RESULTS]{"content": "R", "call_id": "c1"}[/TOOL_RESULTS]‹A</s>›'
    )


def test_gemma() -> None:
    assert shown("gemma", [SYSTEM, *TURN, *TURN], prompt=True) == (
        "<s><start_of_turn>user\nS\n\nQ<end_of_turn>\n<start_of_turn>model\n‹A<end_of_turn>›\n"
        "<start_of_turn>user\nQ<end_of_turn>\n<start_of_turn>model\n‹A<end_of_turn>›\n<start_of_turn>model\n"
    )


def test_deepseek() -> None:
    assert shown("deepseek", [SYSTEM, *TURN, *TURN]) == (
        "<s>S<｜User｜>Q<｜Assistant｜>‹A</s>›<｜User｜>Q<｜Assistant｜>‹A</s>›"
    )
    assert shown("deepseek", [told("user", "Q"), told("assistant", "A", reasoning_content="T")]) == (
        "<s><｜User｜>Q<｜Assistant｜>‹<think>\nT\n</think>\n\nA</s>›"
    )
    assert shown("deepseek", CALLS) == (
        "<s><｜User｜>Q<｜Assistant｜>‹<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
        '```json\n{"city": "東京"}'
        "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜></s>›"
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>R<｜tool▁output▁end｜><｜tool▁outputs▁end｜>‹A</s>›"
    )
    assert shown("deepseek", TURN[:1], prompt=True) == "<s><｜User｜>Q<｜Assistant｜>"
    assert SCHEMA in shown("deepseek", TURN, TOOLS)


@pytest.mark.parametrize("name", ["chatml", "gemma"])
def test_a_template_without_a_form_for_tools_refuses_them(name: str) -> None:
    for messages, tools in ((CALLS, None), (TURN, TOOLS)):
        with pytest.raises(Exception, match=f"{name} has no form for tool"):
            shown(name, messages, tools)


@pytest.mark.parametrize("name", NAMED)
def test_a_template_has_one_region_for_each_message_of_the_assistant(name: str) -> None:
    template = ChatTemplate(template_text(name), VARIABLES, name)
    assert template.has_generation
    text = template.marked([*TURN, *TURN, told("user", "R")], None, ("‹", "›"))
    assert [text[start:end][0] for text, regions_ in [regions(text, ("‹", "›"))] for start, end in regions_] == [
        "A",
        "A",
    ]


@pytest.mark.parametrize("name", NAMED)
def test_a_prompt_is_what_the_conversation_goes_on_with(name: str) -> None:
    """What is learned begins where a model is asked to begin."""
    prompt = shown(name, TURN[:1], prompt=True, **({"enable_thinking": False} if name == "qwen3" else {}))
    assert shown(name, TURN).split("‹")[0] == prompt


@pytest.mark.parametrize("name", [name for name in NAMED if name != "chatml"])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_developer_s_message_is_one_of_the_system(name: str, tools: Any) -> None:
    """ChatML alone has roles of any name."""
    if name != "gemma" or tools is None:
        assert shown(name, [told("developer", "S"), *TURN], tools) == shown(name, [SYSTEM, *TURN], tools)


def test_the_special_tokens_of_the_formats_are_those_of_the_tests() -> None:
    texts = "".join(map(template_text, NAMED))
    assert [text for text in (*SPECIAL[3:], *NOT_SPECIAL) if text not in texts] == []


def test_a_name_that_no_template_has_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"'chatlm'; known: chatml, .* Did you mean chatml\?"):
        template_text("chatlm")
