"""Ids and masks of conversations are those of transformers 4, and for published templates of TRL; tests/chat has transformers 5."""

import json
import os
import random
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.util import find_spec
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import transformers

from tests.builders.chats import VARIABLES, a_conversation, canonical, encoder, peer, told
from tests.chat.families import FAMILIES, conversations, tokenizer, tokenizer_json
from tokenmill import Tokenizer
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import NAMED, template_text
from tokenmill.chat.rendering import ChatSettings
from tokenmill.errors import ChatError

SHARED = Path(__file__).parents[2] / "shared"
CORPUS = SHARED / "corpus/instruct.jsonl.zst"
QWEN3 = SHARED / "tokenizers/qwen3/tokenizer.json"

PUBLISHED = Path((find_spec("trl").submodule_search_locations or [""])[0]) / "chat_templates"  # type: ignore[union-attr]
"""Templates of model families as they are published, and beside some of them one with generation tags by the authors of TRL."""
HEADER_OF_A_GOING_TURN = "<|tool_response><|turn>model\n"
"""What diffusion_gemma writes after a tool's result, and never as the prompt for an answer."""

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
    one = ChatEncoder(Tokenizer.load(QWEN3), ChatSettings(template_text("qwen3"), "assistant", {}), "qwen3")
    own = transformers.PreTrainedTokenizerFast(tokenizer_file=str(QWEN3))
    left = iter(talks)
    while some := list(islice(left, 512)):
        assert_as_transformers(one, own, "qwen3", some)
    assert len(talks) == 15_494


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in PUBLISHED.glob("*.jinja") if "_training" not in path.stem)
)
def test_published_templates_give_the_ids_of_transformers_and_the_masks_of_trl(name: str, tmp_path: Path) -> None:
    """TRL trains, beside what an answer adds to its prompt, white space behind the end, and beginnings that the prompt writes."""
    template = (PUBLISHED / f"{name}.jinja").read_text(encoding="utf-8")
    tagged = PUBLISHED / f"{name}_training.jinja"
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    variables = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
    own = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), **variables)
    one = ChatEncoder(tokenizer(), ChatSettings(template, "assistant", variables, date=date.today().isoformat()), name)
    n_compared = 0
    for messages, tools in conversations(FAMILIES["Qwen3"]).values():
        messages = [{key: value for key, value in message.items() if value is not None} for message in messages]
        try:
            found = one.encode_batch(pa.array([canonical(messages, tools)], pa.large_string()))
        except ChatError:
            continue  # refused: tests/chat holds when
        n_compared += 1
        ids, mask = found.input_ids[0].as_py(), found.loss_mask[0].as_py()
        messages = [
            message | ({"thinking": message["reasoning_content"]} if "reasoning_content" in message else {})
            for message in messages
        ]
        given: dict[str, Any] = {"tools": tools, "return_dict": True, "tokenize": True}
        assert ids == own.apply_chat_template(messages, chat_template=template, **given)["input_ids"]
        if not tagged.exists():
            continue
        text = tagged.read_text(encoding="utf-8")
        wanted = own.apply_chat_template(messages, chat_template=text, return_assistant_tokens_mask=True, **given)
        if wanted["input_ids"] != ids:
            continue  # TRL's writes earlier reasoning, too
        given["tokenize"] = given["return_dict"] = False
        asked = [*takewhile(lambda message: message["role"] != "assistant", messages)]
        prompt = own.apply_chat_template(asked, chat_template=template, add_generation_prompt=True, **given)
        theirs = wanted["assistant_masks"]
        assert "".join(only(own, ids, mask, theirs)) in ("", HEADER_OF_A_GOING_TURN)
        assert all(not more.strip() or more.strip() in prompt for more in only(own, ids, theirs, mask))
    assert n_compared or name == "llava_next"  # which takes no text alone


def only(own: Any, ids: Sequence[int], mask: Sequence[int], other: Sequence[int]) -> Iterator[str]:
    """The texts that one mask trains and another one does not."""
    runs = groupby(zip(ids, mask, other, strict=True), key=lambda token: (token[1], token[2]))
    return (own.decode([id for id, _, _ in run]) for (is_here, is_there), run in runs if is_here and not is_there)
