"""Answers: what a template leaves out of them is told, and so is one that does not end with a token to stop at."""

import re
from typing import Any

import pyarrow as pa
import pytest

from tests.builders.chats import TOOLS, VARIABLES, canonical, encoded, encoder, peer, tokenizer, told
from tests.builders.chats import learned as learned_text
from tokenmill.chat.answers import AnswerCounts
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import NAMED, template_text
from tokenmill.chat.rendering import ChatSettings
from tokenmill.corpus.reader import Batch
from tokenmill.errors import ChatError

TURN = "<|im_start|>{{ m.role }}\n"
REGION = (
    "{% if m.role == 'assistant' %}{% generation %}BODY<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>"
    "{% endif %}"
)
CONTENT = "{{ m.content }}"
CALLS = "{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}{% endfor %}"
FIRST_CALL = "[TOOL_CALLS]{{ m.tool_calls[0].function.name }}"
LAST_CALL = "[TOOL_CALLS]{{ m.tool_calls[-1].function.name }}"
THINKING = "{% if m.reasoning_content %}<think>{{ m.reasoning_content | trim }}</think>{% endif %}"
SAID = "{{ m.content.split('</think>')[-1] }}"
CALL = [{"type": "function", "function": {"name": "weather", "arguments": {"city": "x"}}}]


def template(body: str, tags: bool) -> str:
    """A template for turns whose answers are written by `body`, with generation tags or without."""
    turn = TURN + REGION.replace("BODY", body)
    if not tags:
        turn = turn.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    tools = "{% if tools %}{{ tools | tojson }}{% endif %}"
    prompt = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    return tools + "{% for m in messages %}" + turn + "{% endfor %}" + prompt


def counts(text: str, *messages: dict[str, Any], mask: Any = "assistant", tools: Any = None) -> AnswerCounts:
    one = encoder(template=text, mask=mask)
    return one.encode_batch(pa.array([canonical(list(messages), tools)], pa.large_string())).counts


@pytest.mark.parametrize("mask", ["assistant", "last", "all"])
@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize(
    ("body", "answer", "words"),
    [
        (
            CONTENT,
            {"tool_calls": CALL},
            r"writes nothing of a tool call, 'weather'\. See that it writes message\.tool_calls",
        ),
        (CONTENT, {"content": "", "tool_calls": CALL}, "writes nothing of a tool call, 'weather'"),
        (CONTENT, {"content": "hello", "tool_calls": CALL}, "writes nothing of a tool call, 'weather'"),
        (FIRST_CALL, {"tool_calls": [*CALL, *CALL]}, "writes nothing of a tool call, 'weather, weather'"),
        (LAST_CALL, {"tool_calls": [*CALL, *CALL]}, "writes nothing of a tool call, 'weather, weather'"),
        (CONTENT, {"content": "", "reasoning_content": "so it is"}, "nothing but reasoning.*'so it is'.*weight 0"),
        (SAID, {"content": "<think>so it is</think>"}, "nothing but reasoning.*'so it is'"),
        ("{{ m.contents }}", {"content": "sat"}, "writes no word of its content, 'sat'"),
        (THINKING, {"content": "sat", "reasoning_content": "so"}, "writes no word of its content, 'sat'"),
    ],
)
def test_an_answer_that_the_template_does_not_write_is_refused(
    body: str, answer: dict[str, Any], words: str, tags: bool, mask: Any
) -> None:
    same = "hello" if mask == "all" and not tags else "hello, so it is, sat"  # where an answer is is not known then
    messages = [told("user", f"weather {same}"), {"role": "assistant", **answer}]
    with pytest.raises(ChatError, match=rf"message 1 \(assistant\): .*{words}"):
        counts(template(body, tags), *messages, mask=mask, tools=TOOLS)
    whole = template("{{ m.content }}" + CALLS + THINKING, tags)
    assert counts(whole, *messages, mask=mask, tools=TOOLS).n_without_reasoning == 0
    unlearned = {"role": "assistant", "weight": 0, **answer}
    assert counts(template(body, tags), messages[0], unlearned, mask=mask, tools=TOOLS).n_without_reasoning == 0


@pytest.mark.parametrize("tags", [True, False])
def test_reasoning_that_the_template_leaves_out_beside_an_answer_is_counted(tags: bool) -> None:
    messages = [
        told("user", "well, well"),
        told("assistant", "sat", reasoning_content="well, think"),
        told("assistant", "<think>well</think>cat"),
        told("assistant", "on", reasoning_content=" "),
        {"role": "assistant", "reasoning_content": "a call", "tool_calls": CALL},
        told("assistant", "the", reasoning_content="unlearned", weight=0),
    ]
    text = template(SAID.replace("m.content", "(m.content or '')") + CALLS, tags)
    assert counts(text, *messages).n_without_reasoning == 3
    assert counts(text, *messages, mask="last").n_without_reasoning == 0
    late = "{% if loop.index > 3 %}" + THINKING + "{% endif %}"
    assert counts(text.replace(CALLS, CALLS + late), *messages).n_without_reasoning == 2
    assert counts(text.replace(CALLS, CALLS + THINKING), *messages).n_without_reasoning == 1


SPLITS = {
    "as Qwen3": "{% set parts = m.content.split('</think>') %}{% if loop.last and parts | length > 1 %}<think>"
    "{{ parts[0].split('<think>')[-1] }}</think>{% endif %}{{ parts[-1] }}",
    "as DeepSeek R1": SAID,
    "as DeepSeek V3.1": "{{ m.content.split('</think>', 1)[-1] }}",
    "without the middle": "{% set parts = m.content.split('</think>') %}{{ parts[0] }}{{ parts[-1] if parts | length > 1 }}",
}
AROUND_TAGS = {
    "before a thought": ("First words. <think>why</think> Last words.", "First words."),
    "before an empty thought": ("First words. <think></think> Last words.", "First words."),
    "a tag in the text": ("Write </think> at the end.", "Write"),
    "between two thoughts": ("<think>why</think> Middle. <think>how</think> Last.", "Middle."),
    "between two tags": ("one </think> two </think> three", "two"),
    "a thought without its beginning": ("why</think>Last words.", "why"),
}


@pytest.mark.parametrize("answer", AROUND_TAGS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("tags", [True, False])
def test_words_around_the_tags_of_thinking_are_written_or_refused(answer: str, split: str, tags: bool) -> None:
    """Qwen's published template, and others, split a content at </think> and drop what is elsewhere than they think."""
    content, _ = AROUND_TAGS[answer]
    messages = [told("user", "a"), told("assistant", content)]
    one = encoder(template=template(SPLITS[split], tags))
    text = peer("plain").apply_chat_template(messages, chat_template=template(SPLITS[split], tags), tokenize=False)
    said = content.removeprefix("<think>why</think>")  # a thought that is left out is counted
    if all(word in text for word in re.split(r"[\s.]+|</?think>", said)):
        assert encoded(one, messages).texts[0].as_py() == text
        return
    with pytest.raises(ChatError, match=r"message 1 \(assistant\): .* leaves out .* begins with <think>"):
        encoded(one, messages)
    unlearned = [messages[0], {**messages[1], "weight": 0}]
    assert encoded(one, [*unlearned, told("assistant", "b")]).counts.n_answers == 1


@pytest.mark.parametrize("answer", AROUND_TAGS)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("is_last", [True, False])
def test_our_templates_write_the_words_around_tags_of_thinking(answer: str, name: str, is_last: bool) -> None:
    content, piece = AROUND_TAGS[answer]
    messages = [told("user", "a"), told("assistant", content)]
    later = [] if is_last else [told("user", "b"), told("assistant", "c")]
    found = learned_text(encoder(template=name), [*messages, *later])
    said = content.removeprefix("<think>why</think>").strip() if not is_last else content.split("</think>")[-1].strip()
    assert piece in found and said in found
    if not content.startswith("<think>"):
        assert content in found
    untrained = ChatSettings(template_text(name), "assistant", VARIABLES, untrained=["reasoning"])
    rest = content.removeprefix("<think>why</think>").strip()
    assert rest in learned_text(ChatEncoder(tokenizer("plain"), untrained, "x"), [*messages, *later])


def test_a_thought_with_a_tag_in_it_is_kept_or_counted() -> None:
    messages = [told("user", "a"), told("assistant", "<think>say <think> now</think>b")]
    for name in ("qwen3", "deepseek"):
        assert "say <think> now" in learned_text(encoder(template=name), messages)
    assert counts(template(SPLITS["as Qwen3"], True), *messages).n_without_reasoning == 1


def test_each_of_several_calls_is_written() -> None:
    """A template may write the first and the last one."""
    middle = FIRST_CALL + LAST_CALL
    three = [{"function": {"name": name, "arguments": {}}} for name in ("one", "two", "six")]
    with pytest.raises(ChatError, match="writes nothing of a tool call, 'one, two, six'"):
        counts(template(middle, True), told("user", "a"), {"role": "assistant", "tool_calls": three}, tools=TOOLS)


def test_an_answer_that_the_template_writes_in_other_words_is_written() -> None:
    for body in ("{{ m.content | upper }}", "{{ m.content | length }}", "{{ m.content | replace('sat', 'SIT') }}"):
        counts(template(body, True), told("user", "a"), told("assistant", "sat"))
    renamed = "{% for c in m.tool_calls %}{{ c.function.name | replace('a', 'o') }}{% endfor %}"
    counts(template(renamed, True), told("user", "a"), {"role": "assistant", "tool_calls": CALL})


NEXT = (
    "{% for m in messages %}{% if m.role == 'user' %}<start_of_turn>{{ m.content }}{% else %}[/INST]{{ m.content }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}[/INST]{% endif %}"
)
TALK = [told("user", "a"), told("assistant", "hello"), told("user", "b <|im_end|>"), told("assistant", "c <|im_end|>")]


def learned(text: str, messages: list[dict[str, Any]], train_next: bool, mask: Any = "assistant") -> str:
    """The text with the tokens to learn in braces."""
    one = ChatEncoder(tokenizer("plain"), ChatSettings(text, mask, VARIABLES, train_next=train_next), "chat.jinja")
    found = encoded(one, messages)
    return shown(found.input_ids[0].as_py(), found.loss_mask[0].as_py())


def shown(ids: list[int], flags: list[int]) -> str:
    """The text with the tokens to learn in braces."""
    text, before = "", 0
    for id, flag in zip(ids, flags, strict=True):
        text += ("{" if flag else "}") * (flag != before) + tokenizer("plain").decode([id])
        before = flag
    return text + "}" * before


def test_answers_that_end_with_the_next_marker_are_counted_and_the_marker_can_be_learned() -> None:
    assert counts(NEXT, *TALK) == AnswerCounts(2, 2, 0)
    assert learned(NEXT, TALK, False) == (
        "<start_of_turn>a[/INST]{hello}<start_of_turn>b <|im_end|>[/INST]{c <|im_end|>}"
    )
    assert learned(NEXT, TALK, True) == (
        "<start_of_turn>a[/INST]{hello<start_of_turn>}b <|im_end|>[/INST]{c <|im_end|>}"
    )
    assert learned(NEXT, TALK, True, "last") == learned(NEXT, TALK, False, "last")
    assert learned(NEXT, TALK, True, "all") == learned(NEXT, TALK, False, "all")
    again = [told("user", "a"), told("assistant", "b"), told("assistant", "c"), told("user", "d")]
    assert learned(NEXT, again, True) == "<start_of_turn>a[/INST]{b[/INST]c<start_of_turn>}d"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (NEXT, ["<start_of_turn>a[/INST]{hello<start_of_turn>}", "[/INST]{c <|im_end|>}"]),
        (NEXT.replace("<start_of_turn>", ""), ["a[/INST]{hello}", "[/INST]{c <|im_end|>}"]),
        (
            NEXT.replace("]{{ m.content }}", "]{{ m.content if loop.last else m.content | upper }}"),
            ["<start_of_turn>a[/INST]{hello<start_of_turn>}", "[/INST]{c <|im_end|>}"],
        ),
    ],
    ids=["a marker", "only the text of a message", "an answer that is written otherwise then"],
)
def test_a_sample_ends_with_the_marker_of_the_message_behind_it(text: str, wanted: list[str]) -> None:
    talk = [*TALK[:2], told("user", "<|im_end|> b"), TALK[3]]
    settings = ChatSettings(text, "assistant", VARIABLES, train_next=True, turns="each")
    one = ChatEncoder(tokenizer("plain"), settings, "chat.jinja")
    messages = pa.array([canonical(talk)], pa.large_string())
    (samples,) = one.samples(Batch(0, messages, None, messages=messages))
    found = one.encode_batch(samples.messages)
    for i, ending in enumerate(wanted):
        assert shown(found.input_ids[i].as_py(), found.loss_mask[i].as_py()).endswith(ending)
    assert found.counts == AnswerCounts(2, 1 if "<start" in text else 2, 0)


def test_an_end_token_outside_of_the_generation_tags_can_be_learned() -> None:
    text = template(CONTENT, True).replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}{{ '\\n' }}<|im_end|>")
    assert counts(text, *TALK) == AnswerCounts(2, 2, 0)
    assert learned(text, TALK, True) == learned(text, TALK, False).replace(
        "hello}\n<|im_end|>", "hello\n<|im_end|>}"
    ).replace("c <|im_end|>}\n<|im_end|>", "c <|im_end|>\n<|im_end|>}")


@pytest.mark.parametrize("tags", [True, False])
def test_an_answer_with_an_end_token_ends_with_it_though_white_space_follows(tags: bool) -> None:
    text = template(CONTENT, tags).replace("<|im_end|>", "<|im_end|>\n")
    assert counts(text, *TALK) == AnswerCounts(2, 0, 0)
    assert learned(text, TALK, True) == learned(text, TALK, False)


def test_answers_that_follow_each_other_without_a_gap_are_one() -> None:
    text = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{{ eos_token }}"
    both = [told("assistant", "a"), told("assistant", "b")]
    assert counts(text, *both) == AnswerCounts(1, 1, 0)
    assert learned(text, both, True) == "{ab</s>}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (NEXT, True),
        ("{{ bos_token }}{{ messages }}", True),
        ("{% for m in messages %}{{ '<|' + m.role + '|>' }}{% endfor %}", False),
        ("{% for m in messages %}### {{ m.role }}\n{{ m.content }}{% endfor %}", False),
    ],
)
def test_a_template_without_special_tokens_is_known(text: str, wanted: bool) -> None:
    assert encoder(template=text).writes_special == wanted
    assert peer("plain").bos_token == VARIABLES["bos_token"]
