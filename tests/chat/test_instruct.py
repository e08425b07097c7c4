"""Ids and masks are those of transformers on a whole corpus of instructions."""

import io
import json
from functools import cache
from itertools import islice

import pyarrow as pa
import pytest
import zstandard
from transformers import PreTrainedTokenizerFast

from tests.builders.chats import canonical, told
from tests.conftest import SHARED
from tokenmill import Tokenizer
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import NAMED, template_text
from tokenmill.chat.rendering import ChatSettings

CORPUS = SHARED / "corpus/instruct.jsonl.zst"
TOKENIZERS = SHARED / "tokenizers"
VARIABLES = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not CORPUS.is_file(), reason="needs a corpus and tokenizers that are not the project's own"),
]


@cache
def conversations() -> list[list[dict[str, str]]]:
    with zstandard.open(CORPUS, "rb") as file:
        rows = [json.loads(line) for line in io.TextIOWrapper(file, encoding="utf-8")]
    questions = ["\n\n".join(part for part in (row["instruction"], row["input"]) if part) for row in rows]
    return [
        [told("user", question), told("assistant", row["output"])]
        for question, row in zip(questions, rows, strict=True)
    ]


def assert_equal(name: str, template: str, variables: dict[str, str], step: int = 1) -> None:
    one = ChatEncoder(
        Tokenizer.load(TOKENIZERS / name), ChatSettings(template_text(template), "assistant", variables), template
    )
    peer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZERS / name / "tokenizer.json"))
    n_compared = 0
    some = iter(conversations()[::step])
    while batch := list(islice(some, 512)):
        found = one.encode_batch(pa.array([canonical(messages) for messages in batch], pa.large_string()))
        wanted = peer.apply_chat_template(
            batch,
            chat_template=template_text(template),
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **variables,
        )
        assert found.input_ids.to_pylist() == wanted["input_ids"]
        assert found.loss_mask.to_pylist() == wanted["assistant_masks"]
        n_compared += len(batch)
    assert n_compared == len(conversations()[::step]) > 10_000 / step


@pytest.mark.parametrize("template", NAMED)
def test_every_row_is_as_from_transformers(template: str) -> None:
    assert_equal("qwen3", template, VARIABLES)


@pytest.mark.parametrize("name", ["gpt-2", "llama-2-spm", "o200k_base"])
def test_other_tokenizers_are_as_from_transformers(name: str) -> None:
    token = "</s>" if name == "llama-2-spm" else "<|endoftext|>"
    assert_equal(name, "mistral", {"bos_token": token, "eos_token": token}, 20)
