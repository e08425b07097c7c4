"""A tokenizer travels to other processes: spawned ones, and those of `datasets.map`."""

import json
import multiprocessing
import pickle
import pickletools
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.builders.character_tokenizers import SHAPES
from tests.builders.tokenizer_files import WORD_PIECE
from tests.builders.trained import PATTERNS, TOKENIZER, TRICKY
from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.errors import TokenizerError


def others(folder: Path) -> list[Tokenizer]:
    """One of each engine: byte-level from a .tiktoken file, tokenizers, and characters."""
    TOKENIZER.save(folder / "core")
    (folder / "tokenizer.json").write_text(json.dumps(WORD_PIECE), encoding="utf-8")
    (folder / "characters.json").write_text(json.dumps(SHAPES["added tokens"]), encoding="utf-8")
    ranks = Tokenizer.load(
        folder / "core" / "vocab.tiktoken", pattern="gpt2", special_tokens=TOKENIZER.special_tokens, cache_mb_max=7
    )
    return [ranks, *(Tokenizer.load(folder / name, cache_mb_max=7) for name in ("tokenizer.json", "characters.json"))]


def seen(tokenizer: Tokenizer, texts: list[str]) -> tuple[Any, ...]:
    """What a process makes of a tokenizer; the object's own number tells whether it is loaded once."""
    ids = [tokenizer.encode_batch(texts, special=special).to_pylist() for special in ("as_text", "allow")]
    return tokenizer.digest, tokenizer.engine, tokenizer._cache_mb_max, tokenizer.special_tokens, ids, id(tokenizer)


@pytest.mark.slow
def test_a_spawned_process_gets_the_same_tokenizer_and_loads_it_once(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for tokenizer in (TOKENIZER, *others(tmp_path)):
            found = [pool.submit(seen, tokenizer, TRICKY).result() for _ in range(2)]
            assert found[0] == found[1]
            assert found[0][:-1] == seen(tokenizer, TRICKY)[:-1]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pickle_keeps_ids_and_digest(pattern: str | None) -> None:
    counter = Counter(pattern=pattern)
    counter.update(TRICKY)
    tokenizer = train_vocab(counter.finish(), vocab_size=300, pattern=pattern, pair_count_min=1)
    again = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301 - made in the line itself
    assert (again.digest, again.steps, again.engine) == (tokenizer.digest, tokenizer.steps, "core")
    assert again.encode_batch(TRICKY) == tokenizer.encode_batch(TRICKY)


def test_a_pickle_holds_a_file_and_no_code(tmp_path: Path) -> None:
    for tokenizer in (TOKENIZER, *others(tmp_path)):
        found = list(pickletools.genops(pickle.dumps(tokenizer)))
        texts = {value for code, value, _ in found if isinstance(value, str) and "UNICODE" in code.name}
        assert texts == {"tokenmill.tokenizer.tokenizer", "unpickled"}


def test_a_pickle_of_a_shared_tokenizer_names_its_folder_and_is_loaded_once(tmp_path: Path) -> None:
    for tokenizer in (TOKENIZER, *others(tmp_path)):
        folder = tmp_path / tokenizer.digest
        tokenizer.save(folder)
        pickled = pickle.dumps(tokenizer.shared_in(folder))
        assert len(pickled) < 1000
        again = pickle.loads(pickled)  # noqa: S301
        assert again is pickle.loads(pickled)  # noqa: S301
        assert again.encode_batch(TRICKY) == tokenizer.encode_batch(TRICKY)
        assert pickle.loads(pickle.dumps(again)) is again  # noqa: S301


def test_another_tokenizer_in_the_folder_of_a_shared_one_is_an_error(tmp_path: Path) -> None:
    pickled = pickle.dumps(TOKENIZER.shared_in(tmp_path))
    others(tmp_path)[1].save(tmp_path)
    with pytest.raises(TokenizerError, match=f"expected the tokenizer with the digest {TOKENIZER.digest}; found"):
        pickle.loads(pickled)  # noqa: S301


@pytest.mark.slow
def test_datasets_map_takes_a_tokenizer_into_its_processes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    texts = TRICKY * 20
    for tokenizer in (TOKENIZER, *others(tmp_path)):
        rows = datasets.Dataset.from_dict({"text": texts})
        encoded = rows.map(
            lambda batch, tokenizer=tokenizer: {"ids": tokenizer.encode_batch(batch["text"], threads=1).to_pylist()},
            batched=True,
            batch_size=16,
            num_proc=2,
        )
        assert encoded["ids"][:] == tokenizer.encode_batch(texts).to_pylist()
