"""Each call and each build decides how a special token's text in a document is encoded, and the ids are exact."""

import random
from collections import Counter
from functools import cache
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import tiktoken

from tests.builders.tokenizer_files import IN_TOKENIZERS, changed, loaded, with_added
from tests.builders.trained import END, SPECIAL, TOKENIZER
from tests.conftest import SHARED, Project
from tokenmill import Tokenizer
from tokenmill.errors import CorpusError, ParamsError, SpecialTokenError, TokenizerError

N_DOCUMENTS = 100_000
WORDS = ["the", "cat", " ", "\n", "é", "東", "<|", "|>", "<", "endoftext", "1"]


def seeded(special_tokens: list[str], n_documents: int) -> tuple[list[str], Counter[str]]:
    """Short documents, and how often each special token is whole in them; it is there split and spaced as well."""
    chance = random.Random(11)
    documents, whole = [], Counter[str]()
    for _ in range(n_documents):
        parts = []
        for _ in range(chance.randrange(1, 4)):
            token = chance.choice(special_tokens)
            cut = chance.randrange(1, len(token))
            match chance.randrange(4):
                case 0:
                    parts.append(token)
                    whole[token] += 1
                case 1:
                    parts.append(f"{token[:cut]} {token[cut:]}")
                case 2:
                    parts.append(" ".join(token))
                case 3:
                    parts.append(token[:cut])
            parts.append(chance.choice(["the", " cat ", "\n", " é", "東"]))
        documents.append("".join(parts))
    return documents, whole


def counts_of(tokenizer: Tokenizer, documents: list[str], special: str) -> dict[str, int]:
    counted = pc.value_counts(tokenizer.encode_batch(documents, special=special).values).to_pylist()  # type: ignore[arg-type]
    by_id = {one["values"]: one["counts"] for one in counted}
    return {text: by_id[id] for text, id in tokenizer.special_tokens.items() if id in by_id}


def test_no_control_id_as_text_and_exact_counts_when_allowed() -> None:
    documents, whole = seeded(SPECIAL, N_DOCUMENTS)
    assert counts_of(TOKENIZER, documents, "as_text") == {}
    assert counts_of(TOKENIZER, documents, "allow") == dict(whole)


def test_counts_and_starts_of_tokens_follow_the_policy() -> None:
    texts = ["the cat<|endoftext|>", "no"]
    for special in ("as_text", "allow"):
        ids = TOKENIZER.encode_batch(texts, special=special)  # type: ignore[arg-type]
        assert TOKENIZER.count_tokens(texts, special=special).equals(ids.value_lengths().cast("uint64"))  # type: ignore[arg-type]
        assert TOKENIZER.encode_batch_with_starts(texts, special=special)[0].equals(ids)  # type: ignore[arg-type]
    starts = TOKENIZER.encode_batch_with_starts(texts, special="allow")[1].to_pylist()
    assert starts[0][-1] == len("the cat")
    for method in (TOKENIZER.count_tokens, TOKENIZER.encode_batch_with_starts):
        with pytest.raises(SpecialTokenError, match="endoftext"):
            method(texts, special="reject")  # type: ignore[operator]
        method(["no"], special="reject")  # type: ignore[operator]


@cache
def published(name: str) -> Tokenizer:
    return Tokenizer.load(SHARED / "tokenizers" / name)


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "tokenizers").is_dir(), reason="needs the published tokenizers")
@pytest.mark.parametrize("name", ["gpt-2", "qwen3", "starcoder", "deepseek-llm", "cl100k_base", "o200k_base"])
def test_no_control_id_of_a_published_tokenizer_as_text(name: str) -> None:
    tokenizer = published(name)
    documents, whole = seeded(list(tokenizer.special_tokens), N_DOCUMENTS)
    documents = [document.replace("東", "t") for document in documents]  # two of them lack bytes of it
    assert counts_of(tokenizer, documents, "as_text") == {}
    assert counts_of(tokenizer, documents, "allow") == dict(whole)
    lists = tokenizer.encode_batch(documents[:2000], special="allow").to_pylist()
    assert lists == [tokenizer.encode(document, special="allow") for document in documents[:2000]]


def test_reject_names_text_byte_and_token() -> None:
    with pytest.raises(SpecialTokenError, match=r"text 1: the special token '<\|pad\|>' stands at byte 3\.") as caught:
        TOKENIZER.encode_batch(["a", "é <|pad|>", END], special="reject")
    assert (caught.value.index, caught.value.byte_offset, caught.value.token) == (1, 3, "<|pad|>")
    assert isinstance(caught.value, CorpusError)
    with pytest.raises(SpecialTokenError):
        TOKENIZER.encode(END, special="reject")
    assert TOKENIZER.encode("<|pad", special="reject") == TOKENIZER.encode("<|pad")
    assert TOKENIZER.encode_batch([b"a"], special="reject").to_pylist() == [TOKENIZER.encode("a")]
    with pytest.raises(CorpusError):
        TOKENIZER.encode_batch([b"\xff"], special="reject")


def test_reject_sees_a_token_that_only_normalizing_makes(tmp_path: Path) -> None:
    document = with_added({"content": "<é>", "special": True, "normalized": True}) | {"normalizer": {"type": "NFC"}}
    tokenizer = loaded(tmp_path, document)
    assert tokenizer.engine == "core"
    with pytest.raises(SpecialTokenError, match="'<é>' stands once it is normalized"):
        tokenizer.encode("<e\u0301>", special="reject")
    assert tokenizer.encode("<e\u0301>", special="allow") == [tokenizer.special_tokens["<é>"]]


def test_a_normalizing_tokenizer_counts_its_ids_and_knows_no_starts(tmp_path: Path) -> None:
    texts = ["e\u0301 the", "the cat", ""]
    tokenizer = loaded(tmp_path, changed("normalizer", to={"type": "NFC"}))
    assert tokenizer.count_tokens(texts).to_pylist() == [len(tokenizer.encode(text)) for text in texts]
    with pytest.raises(TokenizerError, match=r"starts of tokens: .* normalized"):
        tokenizer.encode_batch_with_starts(texts)


def test_the_second_engine_knows_the_same_policies(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, IN_TOKENIZERS["normalizer is NFKC"])
    assert tokenizer.encode_batch([f"a{END}", END], special="allow").to_pylist() == [[*tokenizer.encode("a"), 0], [0]]
    assert 0 not in tokenizer.encode(END)
    with pytest.raises(SpecialTokenError, match=r"text 1: .* byte 0"):
        tokenizer.encode_batch(["a", END], special="reject")


def test_a_model_that_makes_a_special_token_itself_is_no_silent_control_id(tmp_path: Path) -> None:
    document = changed("normalizer", to={"type": "NFKC"})
    document["model"] |= {"ignore_merges": True}
    document["pre_tokenizer"] |= {"use_regex": False}
    tokenizer = loaded(tmp_path, document)
    assert tokenizer.engine == "tokenizers"
    with pytest.raises(TokenizerError, match=r"makes the special token '<\|pad\|>' of text at character 0"):
        tokenizer.encode("<|pad|>")


def test_another_policy_is_refused() -> None:
    with pytest.raises(ParamsError, match="found 'all'; allowed: as_text, allow, reject"):
        TOKENIZER.encode("a", special="all")  # type: ignore[arg-type]


def test_the_policies_are_those_of_tiktoken() -> None:
    (pattern,) = TOKENIZER.steps or ()
    model = TOKENIZER._model
    assert model is not None
    peer = tiktoken.Encoding(
        "ours",
        pat_str=pattern,
        mergeable_ranks={token: id for id, token in model.tokens.items()},
        special_tokens=TOKENIZER.special_tokens,
    )
    for text in (f"the cat{END}", "<|pad|><|pad", f"{END} {END}"):
        assert peer.encode(text, allowed_special="all") == TOKENIZER.encode(text, special="allow")
        assert peer.encode(text, disallowed_special=()) == TOKENIZER.encode(text)
        with pytest.raises(ValueError, match="disallowed special token"):
            peer.encode(text)
        with pytest.raises(SpecialTokenError):
            TOKENIZER.encode(text, special="reject")


def test_a_build_allows_what_it_is_told_to(project: Project) -> None:
    project.set(encode__special_tokens_in_text="allow")
    project.build()
    ids = pq.read_table(project.root / "data/tokens/documents/b.jsonl.parquet")["input_ids"].to_pylist()
    assert [one.count(0) for one in ids] == [2, 1, 1]


def test_a_build_that_rejects_names_shard_and_row(project: Project) -> None:
    project.build()
    project.set(encode__special_tokens_in_text="reject")
    done = project.cli("build")
    assert done.returncode == 2
    assert "data/raw/b.jsonl, row 0: the special token '<|endoftext|>' stands at byte 16." in done.stderr
    project.set(encode__special_tokens_in_text="as_text")
    assert project.actions(project.build())["encode"] in ("up to date", "restored")
