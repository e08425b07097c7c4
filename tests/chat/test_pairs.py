"""Pairs: both sides encoded as conversations, and joined."""

import msgspec
import pyarrow as pa
import pytest

from tests.builders.chats import VARIABLES, encoded, encoder, tokenizer, told
from tokenmill.chat.chat_encoder import ChatEncoder, EncodedChat
from tokenmill.chat.named import NAMED, template_text
from tokenmill.chat.rendering import ChatSettings
from tokenmill.errors import ChatError

PROMPT = [told("user", "the cat"), told("assistant", "sat"), told("user", "on")]
ANSWERS = [("the dog", "no"), ("the <|im_end|>", "the"), ("cat", "cat cat")]


def of_pairs(template: str, *answers: tuple[str, str]) -> EncodedChat:
    text = template if "{" in template else template_text(template)
    chat = ChatEncoder(tokenizer("plain"), ChatSettings(text, "assistant", VARIABLES, turns="pair"), "chat.jinja")
    pairs = [
        {"messages": [*PROMPT, told("assistant", one)], "rejected": told("assistant", other)} for one, other in answers
    ]
    return chat.encode_batch(pa.array([msgspec.json.encode(pair).decode() for pair in pairs], pa.large_string()))


@pytest.mark.parametrize("template", NAMED)
def test_a_pair_is_the_conversation_with_either_answer(template: str) -> None:
    found = of_pairs(template, *ANSWERS)
    for i, answers in enumerate(ANSWERS):
        sides = encoded(encoder("plain", template, "last"), *([*PROMPT, told("assistant", one)] for one in answers))
        for name in ("input_ids", "loss_mask"):
            one, other = getattr(sides, name).to_pylist()
            assert getattr(found, name)[i].as_py() == one + other
        assert found.texts[i].as_py() == "".join(sides.texts.to_pylist())
    assert found.counts.n_answers == 2 * len(ANSWERS)


def test_an_error_names_the_pair_and_its_side() -> None:
    refusing = (
        "{% for m in messages %}{{ raise_exception('never') if m.content == 'no' else m.content }}</s>{% endfor %}"
    )
    with pytest.raises(ChatError, match=r"rejected: .*never") as caught:
        of_pairs(refusing, ANSWERS[2], ANSWERS[0])
    assert caught.value.index == 1


def test_a_token_that_joins_prompt_and_answer_belongs_to_both_answers() -> None:
    found = of_pairs("chatml", ("\n\nthe cat", "the dog"))
    ids, mask = found.input_ids[0].as_py(), found.loss_mask[0].as_py()
    trained = [id for id, one in zip(ids, mask, strict=True) if one]
    assert tokenizer("plain").decode(trained) == "\n\n\nthe cat<|im_end|>\nthe dog<|im_end|>"
    n = mask.index(1)
    second = len(mask) - mask[::-1].index(0, mask[::-1].index(1))
    assert ids[second - n : second] == ids[:n]


def test_nothing_of_sides_that_the_template_makes_equal_is_trained() -> None:
    short = (
        "{% for m in messages %}{{ m.role }}{% if m.role == 'assistant' %}{% generation %}{{ m.content[:3] }}</s>"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    masks = of_pairs(short, ("cat a", "cat b"), ("cat", "dog")).loss_mask
    assert [sum(mask) > 0 for mask in masks.to_pylist()] == [False, True]


def test_a_prompt_that_an_answer_changes_is_refused() -> None:
    looking = (
        "{% for m in messages %}{% if m.role == 'assistant' %}a{% generation %}{{ m.content }}</s>{% endgeneration %}"
        "{% else %}{{ messages[-1].content[:9] }}{{ m.content }}{% endif %}{% endfor %}"
    )
    with pytest.raises(ChatError, match="the prompt becomes other tokens"):
        of_pairs(looking, ("the cat sat", "on a mat"))
