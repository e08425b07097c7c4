"""Masks for the chat templates of public model families, without generation tags: each is as reviewed in families.txt.

`make snapshots` writes the file again, and git shows what changed. ⟦ ⟧ enclose what is trained, ⏎ is a line break.
"""

import re
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerFast

from tests.builders.chats import canonical
from tests.chat.families import FAMILIES, Family, conversations, tokenizer, tokenizer_json
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.rendering import ChatSettings
from tokenmill.config.chat_params import AnswerPart, Turns
from tokenmill.corpus.reader import Batch
from tokenmill.errors import ChatError

FILE = Path(__file__).parent / "families.txt"


@cache
def peer() -> PreTrainedTokenizerFast:
    """transformers' tokenizer of the same file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(tokenizer_json(), encoding="utf-8")
        return PreTrainedTokenizerFast(tokenizer_file=str(path))


@cache
def encoder(
    family: Family, template: str, turns: Turns, next: bool, untrained: tuple[AnswerPart, ...] = ()
) -> ChatEncoder:
    variables = {"bos_token": family.bos, "eos_token": family.eos}
    settings = ChatSettings(template, "assistant", variables, train_next=next, turns=turns, untrained=[*untrained])
    return ChatEncoder(tokenizer(), settings, "chat.jinja")


def encoded(
    family: Family,
    template: str,
    turns: Turns,
    messages: list[dict[str, Any]],
    tools: Any,
    next: bool = False,
    untrained: tuple[AnswerPart, ...] = (),
) -> list[tuple[list[int], list[int]]]:
    """The ids and mask of each sample."""
    one = encoder(family, template, turns, next, untrained)
    texts = pa.array([canonical(messages, tools)], pa.large_string())
    samples = one.samples(Batch(0, texts, None, messages=texts))
    batches = [texts] if turns == "together" else [sample.messages for sample in samples]
    found = [one.encode_batch(batch) for batch in batches]
    return [
        (ids.as_py(), mask.as_py()) for made in found for ids, mask in zip(made.input_ids, made.loss_mask, strict=True)
    ]


def shown(ids: list[int], mask: list[int]) -> str:
    """The text of a sample, with what is trained between ⟦ and ⟧."""
    parts = []
    for is_trained, some in groupby(zip(ids, mask, strict=True), key=lambda one: one[1]):
        text = tokenizer().decode([id for id, _ in some]).replace("\n", "⏎")
        parts.append(f"⟦{text}⟧" if is_trained else text)
    return "".join(parts)


def lines(family: Family, messages: list[dict[str, Any]], tools: Any) -> list[str]:
    """What becomes of a conversation with each value of `turns`; one line where both give the same."""
    found: dict[Turns, list[str]] = {}
    for turns in ("together", "each"):
        try:
            found[turns] = [shown(*one) for one in encoded(family, family.template, turns, messages, tools, next=True)]
        except ChatError as error:
            found[turns] = [f"refused: {error}"]
    if found["together"] == found["each"]:
        return [f"both      {line}" for line in found["each"]]
    return [f"{turns:10}{line}" for turns, some in found.items() for line in some]


def masks(name: str) -> list[str]:
    """What becomes of each conversation with the template of a family."""
    return [
        "\n".join([f"# {name}: {shape}", *lines(FAMILIES[name], messages, tools)])
        for shape, (messages, tools) in conversations(FAMILIES[name]).items()
    ]


def reviewed() -> list[str]:
    return FILE.read_text(encoding="utf-8").removesuffix("\n").split("\n\n")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_mask_is_as_reviewed(name: str) -> None:
    assert masks(name) == [part for part in reviewed() if part.startswith(f"# {name}: ")]


def test_every_reviewed_mask_has_its_template() -> None:
    assert [part.split(": ")[0] for part in reviewed()] == [
        f"# {name}" for name in FAMILIES for _ in conversations(FAMILIES[name])
    ]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("turns", ["together", "each"])
def test_ids_and_masks_are_those_of_transformers_for_the_template_with_generation_tags(name: str, turns: Turns) -> None:
    family = FAMILIES[name]
    n_compared = 0
    for messages, tools in conversations(family).values():
        try:
            found = encoded(family, family.template, turns, messages, tools)
        except ChatError:
            continue
        assert encoded(family, family.tagged, turns, messages, tools) == found
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        ends = answers if turns == "each" else [len(messages) - 1]
        for (ids, mask), end in zip(found, ends, strict=True):
            theirs = peer().apply_chat_template(
                [{**one, "thinking": one.get("reasoning_content")} for one in messages[: end + 1]],
                tools,
                chat_template=family.tagged,
                return_dict=True,
                return_assistant_tokens_mask=True,
                bos_token=family.bos,
                eos_token=family.eos,
            )
            wanted = "".join(map(str, theirs["assistant_masks"]))
            if turns == "each":  # only the last answer is trained
                [wanted] = re.findall("1+0*$", wanted)
            assert ids == theirs["input_ids"]
            assert "".join(map(str, mask)) == wanted.rjust(len(ids), "0")
            n_compared += 1
    assert n_compared >= 4


WORDS: dict[AnswerPart, set[str]] = {
    "reasoning": {"Sunny", "Windy"},
    "content": {"No.", "Yes."},
    "tool_calls": {"Rome", "Oslo"},
    "end": set(),
}
"""What the conversations say in each part of an answer, and nowhere else."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("turns", ["together", "each"])
def test_each_part_of_an_answer_is_trained_alone_and_all_of_them_are_the_whole(name: str, turns: Turns) -> None:
    family = FAMILIES[name]
    for shape, (messages, tools) in conversations(family).items():
        try:
            whole = encoded(family, family.template, turns, messages, tools, next=True)
        except ChatError:
            continue
        masks_of_parts = []
        for part, own in WORDS.items():
            others = tuple(one for one in WORDS if one != part)
            found = encoded(family, family.template, turns, messages, tools, next=True, untrained=others)
            masks_of_parts.append([mask for _, mask in found])
            for (ids, mask), (all_ids, all_mask) in zip(found, whole, strict=True):
                assert ids == all_ids
                words = {one for some in WORDS.values() for one in some if one in trained(ids, mask)}
                assert words == {one for one in own if one in trained(ids, all_mask)}, (shape, part)
        united = [[max(bits) for bits in zip(*masks, strict=True)] for masks in zip(*masks_of_parts, strict=True)]
        assert united == [mask for _, mask in whole], shape


def trained(ids: list[int], mask: list[int]) -> str:
    return tokenizer().decode([id for id, is_trained in zip(ids, mask, strict=True) if is_trained])


def rewrite() -> None:
    """Writes families.txt."""
    FILE.write_text("\n\n".join(part for name in FAMILIES for part in masks(name)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    rewrite()
