"""Ids and masks of conversations are those of transformers 4; tests/chat compares them with transformers 5."""

import json
import os
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import transformers

from tests.builders.chats import VARIABLES, a_conversation, canonical, encoder, peer, told
from tokenmill import Tokenizer
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import NAMED, template_text

SHARED = Path(__file__).parents[2] / "shared"
CORPUS = SHARED / "corpus/instruct.jsonl.zst"
QWEN3 = SHARED / "tokenizers/qwen3/tokenizer.json"

Talk = tuple[list[dict[str, Any]], list[Any] | None]


def assert_as_transformers(one: ChatEncoder, own: Any, template: str, talks: Sequence[Talk], **variables: str) -> None:
    found = one.encode_batch(pa.array([canonical(*talk) for talk in talks], pa.large_string()))
    for i, (messages, tools) in enumerate(talks):
        wanted = own.apply_chat_template(
            messages,
            tools=tools,
            chat_template=template_text(template),
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **variables,
        )
        assert found.input_ids[i].as_py() == wanted["input_ids"], found.texts[i]
        assert found.loss_mask[i].as_py() == wanted["assistant_masks"], found.texts[i]


def test_transformers_is_of_the_major_version_that_is_meant() -> None:
    assert transformers.__version__.startswith("5." if os.environ.get("NEWEST") else "4.")


@pytest.mark.parametrize("template", NAMED)
def test_small_conversations_are_as_from_transformers(template: str) -> None:
    chance = random.Random(template)
    takes_tools = template in ("qwen3", "mistral", "deepseek", "llama3")
    talks = [a_conversation(chance, takes_tools and i % 2 == 0, template in ("qwen3", "deepseek")) for i in range(100)]
    assert_as_transformers(encoder("plain", template), peer("plain"), template, talks, **VARIABLES)


@pytest.mark.skipif(not CORPUS.is_file(), reason="needs a corpus and a tokenizer that are not the project's own")
@pytest.mark.timeout(900)
def test_every_row_of_a_corpus_is_as_from_transformers() -> None:
    with pa.input_stream(CORPUS, compression="zstd") as file:
        rows = [json.loads(line) for line in file.read().splitlines()]
    talks: list[Talk] = []
    for row in rows:
        question = "\n\n".join(part for part in (row["instruction"], row["input"]) if part)
        talks.append(([told("user", question), told("assistant", row["output"])], None))
    one = ChatEncoder(Tokenizer.load(QWEN3), template_text("qwen3"), "assistant", {}, "qwen3")
    own = transformers.PreTrainedTokenizerFast(tokenizer_file=str(QWEN3))
    left = iter(talks)
    while some := list(islice(left, 512)):
        assert_as_transformers(one, own, "qwen3", some)
    assert len(talks) == 15_494
