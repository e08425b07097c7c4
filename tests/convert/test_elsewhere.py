"""What other programs would do otherwise with a tokenizer."""

import json
from pathlib import Path

import pytest

from tests.builders.tokenizer_files import DOCUMENT, ISOLATED, changed, loaded, split
from tests.builders.trained import TOKENIZER
from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.artifacts.model_card import make_card, readme_of
from tokenmill.features.convert.inspect import check_tokenizer, lines_of

NFC = changed("normalizer", to={"type": "NFC"})


def test_check_names_the_ids_and_the_pad_token_that_transformers_would_take(tmp_path: Path) -> None:
    loaded(tmp_path, DOCUMENT)
    found = check_tokenizer(tmp_path)
    assert found["elsewhere"] == [
        "LlamaConfig's default ids mean other tokens: bos 1 is '<|pad|>', eos 2 is '!'. Set bos_token_id and eos_token_id.",
        "No pad token: transformers' collators for language models stop.",
        "transformers makes ids of special tokens in a text, unless a call has split_special_tokens=True.",
    ]
    assert lines_of(found, "x")[-1] == f"  elsewhere       {found['elsewhere'][-1]}"
    names = {"pad_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    assert len(check_tokenizer(tmp_path)["elsewhere"]) == 2


def test_check_says_why_llama_cpp_would_give_other_ids(tmp_path: Path) -> None:
    loaded(tmp_path, NFC)
    why = "llama.cpp would give other ids: it changes no text before it splits it."
    assert check_tokenizer(tmp_path)["elsewhere"][0] == why


@pytest.mark.slow
def test_train_vocab_names_in_one_line_the_programs_that_check_names(project: Project) -> None:
    project.set(count__pattern="o200k")
    said = project.build().stderr.splitlines()
    (line,) = [one for one in said if one.startswith("train-vocab: for ")]
    assert line == "train-vocab: for llama.cpp and transformers, see `tokenmill check data/tokenizer`"
    found = project.cli("check", "data/tokenizer").stdout
    assert "elsewhere       llama.cpp would" in found and "elsewhere       transformers makes" in found


def test_check_finds_a_split_by_a_text_that_was_meant_as_a_regex(tmp_path: Path) -> None:
    loaded(tmp_path, split(**ISOLATED, pattern={"String": r"\p{N}{1,3}"}))
    what = "splits by a text that looks like a regex: only that very text matches"
    assert {"what": what, "n": 1, "examples": [r"\p{N}{1,3}"]} in check_tokenizer(tmp_path)["oddities"]


def test_the_card_says_why_llama_cpp_would_give_other_ids(tmp_path: Path) -> None:
    loaded(tmp_path, NFC).save(tmp_path / "other")
    TOKENIZER.save(tmp_path / "own")
    cards = []
    for name in ("own", "other"):
        tokenizer = Tokenizer.load(tmp_path / name)
        cards.append(make_card(tokenizer, make_golden(tmp_path / name, tokenizer, []), None, None))
    assert cards[0].llama_cpp is None and "llama.cpp" not in readme_of(cards[0])
    assert cards[1].llama_cpp is not None and cards[1].llama_cpp in readme_of(cards[1])
