"""Samples of conversations: one for each trained message, with what a model sees in front of it."""

import json
import re
from functools import partial
from typing import Any

import jinja2
import jinja2.ext
import pyarrow as pa
import pytest

from tests.builders.chats import TOOLS, VARIABLES, canonical, encoded, encoder, tokenizer, told
from tokenmill.chat import samples
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import NAMED, template_text
from tokenmill.chat.rendering import ChatSettings
from tokenmill.corpus.reader import Batch
from tokenmill.corpus.text_digests import text_digests
from tokenmill.errors import ChatError

THINKING = [
    told("user", "on"),
    told("assistant", "the cat", reasoning_content="it sat"),
    told("user", "the log"),
    told("assistant", "the dog", reasoning_content="it is on it"),
    told("user", "and"),
    told("assistant", "no"),
]


def each(template: str, **settings: Any) -> ChatEncoder:
    text = template if "{" in template else template_text(template)
    chosen = {"mask": "assistant", "turns": "each", **settings}
    return ChatEncoder(tokenizer("plain"), ChatSettings(text, variables=VARIABLES, **chosen), "chat.jinja")


def batch_of(*conversations: str) -> Batch:
    ids = pa.array([f"id {i}" for i in range(len(conversations))], pa.large_string())
    messages = pa.array(conversations, pa.large_string())
    return Batch(7, messages, ids, messages=messages)


def cut(one: ChatEncoder, *conversations: str) -> list[tuple[str, str]]:
    """The text of each sample, and what of it is trained."""
    found = []
    for batch in one.samples(batch_of(*conversations)):
        made = one.encode_batch(batch.messages)
        for ids, mask, text in zip(made.input_ids, made.loss_mask, made.texts, strict=True):
            some = [id for id, is_trained in zip(ids.as_py(), mask.as_py(), strict=True) if is_trained]
            found.append((text.as_py(), tokenizer("plain").decode(some)))
    return found


def rendered(template: str, messages: list[dict[str, Any]], tools: Any, prompt: bool) -> str:
    """What plain jinja2 makes of messages."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    source = re.sub(r"\{%-? (end)?generation -?%\}", "", template)
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    return environment.from_string(source).render(
        messages=messages, tools=tools, add_generation_prompt=prompt, **VARIABLES
    )


def test_reasoning_is_trained_in_every_answer_and_hidden_in_the_history() -> None:
    start, end = "<|im_start|>", "<|im_end|>\n"
    first = f"{start}user\non{end}{start}assistant\n"
    second = f"{first}the cat{end}{start}user\nthe log{end}{start}assistant\n"
    third = f"{second}the dog{end}{start}user\nand{end}{start}assistant\n<think>\n\n</think>\n\n"
    answers = [
        "<think>\nit sat\n</think>\n\nthe cat<|im_end|>",
        "<think>\nit is on it\n</think>\n\nthe dog<|im_end|>",
        "no<|im_end|>",
    ]
    assert cut(each("qwen3"), canonical(THINKING)) == [
        (history + answer + "\n", answer) for history, answer in zip((first, second, third), answers, strict=True)
    ]


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("template", ["qwen3", "deepseek"])
def test_the_history_is_what_inference_shows_and_the_rest_is_trained(template: str, tagged: bool) -> None:
    text = template_text(template)
    if not tagged:  # together refuses this, since the template rewrites the history
        text = re.sub(r"\{%-? (end)?generation -?%\}", "", text)
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "the mat"}}}
    asked = {"role": "assistant", "content": "", "reasoning_content": "so", "tool_calls": [call]}
    messages = [
        *THINKING[:4],
        told("user", "dog?"),
        asked,
        told("tool", "sat"),
        told("assistant", "log", reasoning_content="as it sat"),
    ]
    found = cut(each(text), canonical(messages, TOOLS))
    assert len(found) == 4
    for i, (shown, trained) in zip((1, 3, 5, 7), found, strict=True):
        before = rendered(text, messages[:i], TOOLS, prompt=True)
        assert shown == rendered(text, messages[: i + 1], TOOLS, prompt=False)
        assert shown.startswith(before) and shown[len(before) :].strip("\n") == trained.strip("\n")
        assert messages[i]["reasoning_content"] in trained


@pytest.mark.parametrize("mask", ["assistant", "last"])
@pytest.mark.parametrize("template", NAMED)
def test_a_conversation_of_one_answer_is_the_same_either_way(template: str, mask: Any) -> None:
    conversations = [THINKING[:2], [told("user", "the"), told("assistant", "<|im_end|> 東京")]]
    one = each(template, mask=mask)
    [batch] = one.samples(batch_of(*map(canonical, conversations)))
    made, wanted = one.encode_batch(batch.messages), encoded(encoder(template=template, mask=mask), *conversations)
    assert made.input_ids.equals(wanted.input_ids) and made.loss_mask.equals(wanted.loss_mask)
    assert made.counts == wanted.counts


def test_two_regions_around_one_answer_are_the_same_either_way() -> None:
    part = "{% generation %}X{% endgeneration %}"
    template = "{% for message in messages %}{{ message.content }}{% if loop.last %}PART-PART{% endif %}{% endfor %}"
    template = template.replace("PART", part)
    talk = [told("user", "a"), told("assistant", "-")]
    assert cut(each(template), canonical(talk)) == [("a-X-X", "XX")]
    assert sum(encoded(encoder(template=template), talk).loss_mask[0].as_py()) == 2


def test_only_trained_messages_end_a_sample() -> None:
    talk = [
        told("user", "a"),
        told("assistant", "b", weight=0),
        told("user", "c"),
        told("assistant", "d"),
        told("user", "e"),
    ]
    start, end = "<|im_start|>", "<|im_end|>\n"
    text = f"{start}user\na{end}{start}assistant\nb{end}{start}user\nc{end}{start}assistant\nd{end}"
    for mask in ("assistant", "last"):
        assert cut(each("chatml", mask=mask), canonical(talk)) == [(text, "d<|im_end|>")]


def test_a_conversation_without_a_trained_message_is_one_whole_sample() -> None:
    talk = [told("user", "a"), told("assistant", "b", weight=0), told("user", "c")]
    start, end = "<|im_start|>", "<|im_end|>\n"
    whole = f"{start}user\na{end}{start}assistant\nb{end}{start}user\nc{end}"
    assert cut(each("chatml"), canonical(talk)) == [(whole, "")]
    assert cut(each("chatml"), canonical(talk[:1])) == [(f"{start}user\na{end}", "")]


def test_samples_have_id_row_and_digest_of_their_conversation_in_batches_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samples, "BATCH_BYTES", 10)
    batch = batch_of(canonical(THINKING[:2]), canonical(THINKING))
    digests = text_digests(batch.messages)
    found = list(each("chatml").samples(batch))
    assert [len(one.texts) for one in found] == [2, 1, 1]  # at most as much text as the batch had
    assert [one.rows().to_pylist() for one in found] == [[7, 8], [8], [8]]
    assert [one.ids.to_pylist() for one in found if one.ids is not None] == [["id 0", "id 1"], ["id 1"], ["id 1"]]
    assert [one.digests for one in found] == [digests.take([0, 1]), *[digests.take([1])] * 2]
    assert found[0].slice(1, 1).digests == digests.take([1])
    assert batch.messages is not None and found[2].messages == batch.messages.slice(1)


def test_errors_name_the_conversation_before_any_sample_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [told("user", "a"), told("assistant", "b", weight=3)]
    with pytest.raises(ChatError, match=r"message 1 \(assistant\): weight 3; expected true, false, 0 or 1") as caught:
        each("chatml").samples(batch_of(canonical(THINKING), canonical(wrong)))
    assert caught.value.index == 1
    monkeypatch.setattr(samples, "_CHARACTERS_MAX", 500)
    with pytest.raises(ChatError, match=r"each makes a sample for each of its 3 trained messages") as caught:
        each("chatml").samples(batch_of(canonical(THINKING[:2]), canonical(THINKING)))
    assert caught.value.index == 1
