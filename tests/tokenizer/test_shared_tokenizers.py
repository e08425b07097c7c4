"""Published tokenizers give their published ids, and those of `tokenizers` and tiktoken on real text."""

import gzip
import json
import unicodedata
from functools import cache
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tiktoken
import tiktoken.load
import tokenizers

from tests.conftest import SHARED
from tokenmill import Tokenizer
from tokenmill.errors import TokenizerError
from tokenmill.features.convert.convert import loaded
from tokenmill.features.convert.formats.llama_cpp_hash import lines_for_converter

TOKENIZERS = SHARED / "tokenizers"
VECTORS = ["gpt-2", "qwen3", "starcoder", "deepseek-llm", "llama-2-spm"]
IN_CORE = {
    "gpt-2": "gpt2",
    "qwen3": "qwen2",
    "starcoder": "starcoder",
    "deepseek-llm": "deepseek",
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
}
SPECIAL = {"cl100k_base": {"<|endoftext|>": 100257}, "o200k_base": {"<|endoftext|>": 199999}}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not TOKENIZERS.is_dir(), reason="needs the published tokenizers, which are not the project's own"
    ),
]


@cache
def tokenizer(name: str) -> Tokenizer:
    return Tokenizer.load(TOKENIZERS / name)


@cache
def texts() -> tuple[str, ...]:
    """Some of every language, C sources, and the hard files."""
    corpus = SHARED / "corpus"
    with gzip.open(sorted((corpus / "multilingual").glob("*.gz"))[0], "rt", encoding="utf-8") as lines:
        found = [json.loads(line)["body"] for line in islice(lines, 0, 2000, 10)]
    found += pq.read_table(sorted((corpus / "code").glob("*.parquet"))[0])["text"].slice(0, 30).to_pylist()
    for path in sorted((corpus / "hard").iterdir()):
        if path.is_file():
            found.append(path.read_bytes()[:30_000].decode(errors="replace"))
    return tuple(found)


def vectors(name: str) -> tuple[list[str], list[list[int]]]:
    (path,) = (TOKENIZERS / name).glob("*.inp")
    inputs = path.read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = path.with_suffix(".out").read_text().split("\n")[: len(inputs)]
    return inputs, [[int(id) for id in line.split()] for line in lines]


@pytest.mark.parametrize("name", VECTORS)
def test_the_published_ids_come_out(name: str) -> None:
    inputs, expected = vectors(name)
    wrong = []
    for text, ids in zip(inputs, expected, strict=True):
        try:
            found = tokenizer(name).encode(text)
        except TokenizerError as error:
            found = [str(error)]  # type: ignore[list-item]
        if found != ids:
            wrong.append((text, found, ids))
    assert not wrong


@pytest.mark.parametrize(("name", "pattern"), IN_CORE.items())
def test_the_core_gives_the_ids_of_tokenizers_on_real_text(name: str, pattern: str) -> None:
    ours = tokenizer(name)
    assert (ours.engine_reason, ours.pattern) == (None, pattern)
    peer = tokenizers.Tokenizer.from_file(str(TOKENIZERS / name / "tokenizer.json"))
    peer.encode_special_tokens = True
    n_compared = 0
    for text in texts():
        try:
            ids = ours.encode(text)
        except TokenizerError:  # starcoder and deepseek-llm lack some bytes, which tokenizers drops without a word
            assert name in ("starcoder", "deepseek-llm")
            continue
        assert ids == peer.encode(text, add_special_tokens=False).ids
        assert ours.decode(ids) == (unicodedata.normalize("NFC", text) if name == "qwen3" else text)
        n_compared += 1
    assert n_compared > len(texts()) * 0.9


@pytest.mark.parametrize("name", SPECIAL)
def test_a_tiktoken_file_gives_the_ids_of_tiktoken(name: str) -> None:
    path = TOKENIZERS / name / f"{name}.tiktoken"
    ours = Tokenizer.load(path, IN_CORE[name], SPECIAL[name])
    (pattern,) = ours.steps or ()
    ranks = tiktoken.load.load_tiktoken_bpe(str(path))
    peer = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=SPECIAL[name])
    for text in texts():
        assert ours.encode(text) == peer.encode_ordinary(text)


def test_what_is_encoded_by_the_core_alone_says_so() -> None:
    assert tokenizer("llama-2-spm").engine == "core"
    assert tokenizer("llama-2-spm").engine_reason is None


@pytest.mark.parametrize("name", ["gpt-2", "starcoder", "deepseek-llm", "cl100k_base", "o200k_base", "qwen3"])
def test_a_published_tokenizer_survives_saving(tmp_path: Path, name: str) -> None:
    tokenizer(name).save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.digest, again.special_tokens) == (tokenizer(name).digest, tokenizer(name).special_tokens)
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert {text: peer.token_to_id(text) for text in again.special_tokens} == again.special_tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_a_published_tiktoken_file_saved_as_a_directory_keeps_its_ids(tmp_path: Path, name: str) -> None:
    ours = Tokenizer.load(TOKENIZERS / name / f"{name}.tiktoken", IN_CORE[name], SPECIAL[name])
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.digest == ours.digest
    assert all(again.encode(text) == ours.encode(text) for text in texts())


@pytest.mark.parametrize(
    ("name", "hash"),
    [
        ("gpt-2", "3ce83efda5659b07b1ad37ca97ca5797ea4285d9b9ab0dc679e4a720c9da7454"),
        ("qwen3", "e636dc30a262dcc0d8c323492e32ae2b70728f4df7dfe9737d9f920a282b8aea"),
        ("starcoder", "35d91631860c815f952d711435f48d356ebac988362536bed955d43bfa436e34"),
        ("o200k_base", "ccc2ef013c104be7bae2965776d611e1d7a8a2a9c547dd93a682c9a9fc80352e"),
    ],
)
def test_the_converter_of_llama_cpp_has_the_same_hash(name: str, hash: str) -> None:
    """The hashes are those of conversion/base.py in llama.cpp, for the tokenizers of these models."""
    assert lines_for_converter(loaded(TOKENIZERS / name), "x")[0] == f'if chkhsh == "{hash}":'
