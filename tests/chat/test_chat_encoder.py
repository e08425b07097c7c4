"""Ids and masks are those of transformers, for every named template and every kind of tokenizer."""

import json
import random
import unicodedata
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.builders.chats import (
    DOCUMENTS,
    VARIABLES,
    a_conversation,
    canonical,
    encoded,
    encoder,
    peer,
    tokenizer,
    told,
)
from tokenmill.chat.answers import AnswerCounts
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import NAMED, template_text
from tokenmill.chat.rendering import ChatSettings
from tokenmill.config.sources import Conversations
from tokenmill.corpus.conversation_tables import conversations_of
from tokenmill.corpus.conversations import of_messages
from tokenmill.corpus.makers import maker_of
from tokenmill.errors import ChatError

TWO_TURNS = [
    told("user", "one"),
    told("assistant", "the cat"),
    told("user", "two"),
    told("assistant", "sat"),
]


def expected(name: str, template: str, messages: list[dict[str, Any]], tools: list[Any] | None) -> Any:
    return peer(name).apply_chat_template(
        messages,
        tools=tools,
        chat_template=template_text(template),
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
        **VARIABLES,
    )


@pytest.mark.parametrize("template", NAMED)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_ids_and_masks_are_those_of_transformers(name: str, template: str) -> None:
    chance = random.Random(f"{name} {template}")
    takes_tools = template in ("qwen3", "mistral", "deepseek", "llama3")
    conversations = [
        a_conversation(chance, takes_tools and i % 2 == 0, template in ("qwen3", "deepseek")) for i in range(40)
    ]
    found = encoder(name, template).encode_batch(
        pa.array([canonical(*conversation) for conversation in conversations], pa.large_string())
    )
    for i, (messages, tools) in enumerate(conversations):
        wanted = expected(name, template, messages, tools)
        assert found.input_ids[i].as_py() == wanted["input_ids"], found.texts[i]
        assert found.loss_mask[i].as_py() == wanted["assistant_masks"], found.texts[i]
        shown = peer(name).apply_chat_template(
            messages, tools=tools, chat_template=template_text(template), tokenize=False, **VARIABLES
        )
        assert found.texts[i].as_py() == shown


@pytest.mark.parametrize("template", NAMED)
def test_a_prompt_has_the_ids_that_transformers_gives_a_model_to_answer(template: str) -> None:
    found = encoded(encoder("plain", template, mask="none"), TWO_TURNS[:3], TWO_TURNS[:1])
    for i, n in enumerate((3, 1)):
        text = template_text(template)
        wanted = peer("plain").apply_chat_template(
            TWO_TURNS[:n], chat_template=text, add_generation_prompt=True, return_dict=True, **VARIABLES
        )
        assert found.input_ids[i].as_py() == wanted["input_ids"], found.texts[i]
        assert found.loss_mask[i].as_py() == [0] * len(wanted["input_ids"])
    assert found.counts == AnswerCounts()


def test_a_prompt_does_not_end_with_an_answer() -> None:
    with pytest.raises(ChatError, match=r"message 3 \(assistant\): the conversation ends with an answer") as caught:
        encoded(encoder(mask="none"), TWO_TURNS[:3], TWO_TURNS)
    assert caught.value.index == 1


@pytest.mark.parametrize("name", ["plain", "nfc", "prefix space"])
def test_ids_decode_to_the_text(name: str) -> None:
    found = encoded(encoder(name), TWO_TURNS)
    text = found.texts[0].as_py()
    assert text == (
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\nthe cat<|im_end|>\n"
        "<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\nsat<|im_end|>\n"
    )
    decoded = tokenizer(name).decode(found.input_ids[0].as_py())
    assert decoded == (tokenizer(name).prepared(text, "allow").decode())


def learned(one: ChatEncoder, messages: list[dict[str, Any]]) -> str:
    """The text of the tokens to learn, and `|` for each gap."""
    found = encoded(one, messages)
    ids, mask = np.array(found.input_ids[0].as_py()), np.array(found.loss_mask[0].as_py())
    runs = np.split(np.arange(len(ids)), np.flatnonzero(np.diff(mask)) + 1)
    return "|".join(tokenizer("plain").decode(ids[run].tolist()) for run in runs if len(run) and mask[run[0]])


def test_the_mask_is_that_of_the_assistant_or_of_its_last_message_or_of_all() -> None:
    assert learned(encoder(), TWO_TURNS) == "the cat<|im_end|>|sat<|im_end|>"
    assert learned(encoder(mask="last"), TWO_TURNS) == "sat<|im_end|>"
    assert learned(encoder(mask="all"), TWO_TURNS) == encoded(encoder(), TWO_TURNS).texts[0].as_py()


def test_a_message_of_weight_0_is_not_learned() -> None:
    weighted = [{**message, "weight": 0} if message["content"] == "sat" else message for message in TWO_TURNS]
    assert learned(encoder(), weighted) == "the cat<|im_end|>"
    assert learned(encoder(mask="last"), weighted) == ""
    assert learned(encoder(mask="all"), weighted).endswith("two<|im_end|>\n<|im_start|>assistant\n|\n")
    ones = [{**message, "weight": 1} for message in TWO_TURNS]
    assert learned(encoder(), ones) == learned(encoder(), TWO_TURNS)


@pytest.mark.parametrize("key", ["loss", "loss_scale", "train", "training", "weight"])
@pytest.mark.parametrize("no", [False, 0, 0.0])
def test_a_message_that_says_not_to_learn_it_is_not_learned(key: str, no: float) -> None:
    yes = type(no)(1)
    shape = [{"from": "human", "value": "one"}, {"from": "gpt", "value": "bad", key: no}]
    shape += [{"from": "human", "value": "two", key: no}, {"from": "gpt", "value": "good", key: yes}]
    rows = of_messages(json.dumps(shape), None).json.decode()
    kind = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string()), (key, pa.scalar(no).type)]))
    maker = maker_of(Conversations("messages", None, None))
    made = conversations_of([pa.array([shape], kind)], maker)
    assert made.messages.to_pylist() == [rows.replace(f',"{key}":null', "")]
    found = encoder().encode_batch(made.messages)
    text = tokenizer("plain").decode(pc.filter(found.input_ids.values, pc.equal(found.loss_mask.values, 1)).to_pylist())
    assert text == "good<|im_end|>"


def test_a_key_of_one_s_own_says_what_is_learned() -> None:
    messages = [{**message, "good": message["content"] != "sat"} for message in TWO_TURNS]
    assert learned(encoder(), messages) == "the cat<|im_end|>|sat<|im_end|>"
    named = ChatEncoder(
        tokenizer("plain"), ChatSettings(template_text("chatml"), "assistant", {}, train_key="good"), "chat.jinja"
    )
    assert learned(named, messages) == learned(copy(named), messages) == "the cat<|im_end|>"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"loss": "false"}, "loss 'false'; expected true, false, 0 or 1"),
        ({"train": [1]}, r"train \[1\]; expected true"),
        ({"loss": 0.37}, r"loss 0\.37; expected true"),
        ({"weight": 0, "train": True}, "weight 0 and train True contradict each other"),
        ({"train_detail": [{"begin_offset": 0, "train": False}]}, "train_detail: parts of a message"),
    ],
)
def test_a_message_that_says_of_its_learning_what_is_not_understood_is_refused(keys: Any, words: str) -> None:
    with pytest.raises(ChatError, match=rf"message 1 \(assistant\): {words}"):
        encoded(encoder(), [told("user", "a"), told("assistant", "b", **keys)])
    encoded(encoder(), [told("user", "a"), told("assistant", "b", train_detail=[], loss=True, weight=1)])


def test_a_conversation_without_an_assistant_is_not_learned() -> None:
    for mask in ("assistant", "last"):
        assert learned(encoder(mask=mask), [told("user", "one")]) == ""


def test_no_conversation_gives_nothing() -> None:
    found = encoder().encode_batch(pa.array([], pa.large_string()))
    assert [len(one) for one in found[:3]] == [0, 0, 0]
    assert found.counts == AnswerCounts(0, 0, 0)
    assert found.input_ids.type == pa.large_list(pa.uint32())
    assert found.loss_mask.type == pa.large_list(pa.int8())
    assert found.texts.type == pa.large_string()


def test_a_batch_gives_what_each_conversation_gives_alone() -> None:
    chance = random.Random(1)
    conversations = [a_conversation(chance, False, False)[0] for _ in range(20)]
    conversations[3][0]["content"] = "<|im_end|> with stand-ins"
    conversations[8][0]["content"] = "<s>"
    together = encoded(encoder(), *conversations)
    for i, messages in enumerate(conversations):
        alone = encoded(encoder(), messages)
        assert [column[i] for column in together[:3]] == [column[0] for column in alone[:3]]


BARE = (
    "{% for message in messages %}{% if message.role == 'assistant' %}{% generation %}{{ message.content }}{% endgeneration %}"
    "{% else %}{{ message.content }}{% endif %}{% endfor %}"
)


def test_a_token_that_is_partly_generated_is_learned() -> None:
    """The blank belongs to the question, and the token of "the" has it."""
    assert learned(encoder(template=BARE), [told("user", "on "), told("assistant", "the cat")]) == " the cat"
    assert learned(encoder(template=BARE), [told("assistant", "on "), told("user", "the cat")]) == "on the"


def test_a_last_character_of_several_tokens_is_learned_whole() -> None:
    """transformers takes the first token of the character alone."""
    assert learned(encoder(template=BARE), [told("user", "a"), told("assistant", "👩"), told("user", "b")]) == "👩"


@pytest.mark.parametrize(
    ("question", "answer", "after", "wanted"),
    [
        ("e", "\u0301e\u0301", "b", "éé"),  # the first accent is of the question's letter
        ("a", "e", "\u0301b", "é"),
        ("e\u0301", "x", "e\u0301", "x"),
        ("\u212b", "\u212b", "\u212b", "Å"),  # the sign of a length is a letter when normalized
        ("q\u0307", "\u0323", "b", "\u0323\u0307"),  # the accents change places
    ],
)
def test_parts_of_a_text_that_is_normalized_are_found(question: str, answer: str, after: str, wanted: str) -> None:
    found = encoded(encoder("nfc", BARE), [told("user", question), told("assistant", answer), told("user", after)])
    text = question + answer + after
    ids, mask = found.input_ids[0].as_py(), found.loss_mask[0].as_py()
    assert tokenizer("nfc").decode(ids) == unicodedata.normalize("NFC", text)
    trained = tokenizer("nfc").decode([id for id, flag in zip(ids, mask, strict=True) if flag])
    assert wanted in trained and len(trained) <= len(wanted) + 1
