"""A draft vocabulary has the most frequent ids of a dataset, and maps that lead both ways."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.builders.conversation_sets import Conversation, arranged, files_of, manifest_of, write_sets, write_unit
from tokenmill.cli.main import main
from tokenmill.dataset.manifest import read_manifest, write_manifest
from tokenmill.errors import ParamsError, ValidationError
from tokenmill.features.draft.draft_vocab import differences, draft_vocab, lines_of

ID_MAX = 9
UNITS = [
    [Conversation([1, 2, 2, 5], [0, 1, 0, 1]), Conversation([5, 5, 7], [1, 1, 0])],
    [Conversation([2, 9, 9, 9], [0, 0, 1, 0])],
]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    tokens = tmp_path / "tokens"
    units = [write_unit(tokens, f"u{i}", some, ID_MAX) for i, some in enumerate(UNITS)]
    arrangement, sets = arranged(tmp_path / "work", units, files_of(), [], ID_MAX)
    write_manifest(manifest_of(units, UNITS, ID_MAX, None, write_sets(tokens, arrangement, sets)), tokens)
    return tokens


def maps(folder: Path) -> tuple[list[int], list[bool]]:
    d2t, t2d = (np.load(folder / f"{name}.npy") for name in ("d2t", "t2d"))
    assert d2t.dtype == np.int64 and t2d.dtype == np.bool_
    return d2t.tolist(), t2d.tolist()


def test_the_hot_ids_are_the_most_frequent_ones_and_of_equals_the_lower(dataset: Path, tmp_path: Path) -> None:
    found = draft_vocab(dataset, tmp_path / "draft", 3)  # 2, 5 and 9 occur three times, 1 and 7 once
    d2t, t2d = maps(tmp_path / "draft")
    assert [draft + offset for draft, offset in enumerate(d2t)] == [2, 5, 9]
    assert [id for id, is_hot in enumerate(t2d) if is_hot] == [2, 5, 9] and len(t2d) == ID_MAX + 1
    assert found.n_tokens == 11 and found.coverage == {3: round(9 / 11, 6), 10: 1.0}
    assert "3  81.818%  <- this one" in lines_of(found, tmp_path)


@pytest.mark.parametrize("top", range(1, 11))
def test_trained_tokens_alone_are_counted(dataset: Path, tmp_path: Path, top: int) -> None:
    pairs = [pair for unit in UNITS for one in unit for pair in zip(one.ids, one.mask, strict=True)]
    counts = Counter(id for id, bit in pairs if bit)
    expected = sorted(sorted(range(ID_MAX + 1), key=lambda id: (-counts[id], id))[:top])
    draft_vocab(dataset, tmp_path / "draft", top, vocab_size=12, trained_only=True)
    d2t, t2d = maps(tmp_path / "draft")
    assert [draft + offset for draft, offset in enumerate(d2t)] == expected
    assert [id for id, is_hot in enumerate(t2d) if is_hot] == expected and len(t2d) == 12


def test_the_tensors_are_those_of_the_arrays(dataset: Path, tmp_path: Path) -> None:
    draft_vocab(dataset, tmp_path / "draft", 4)
    content = (tmp_path / "draft/draft_vocab.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, values = json.loads(content[8 : 8 + length]), content[8 + length :]
    assert header["d2t"] == {"dtype": "I64", "shape": [4], "data_offsets": [0, 32]}
    assert header["t2d"] == {"dtype": "BOOL", "shape": [10], "data_offsets": [32, 42]}
    d2t, t2d = maps(tmp_path / "draft")
    assert np.frombuffer(values[:32], "<i8").tolist() == d2t
    assert np.frombuffer(values[32:], np.bool_).tolist() == t2d


def test_the_check_finds_a_map_of_other_content_or_of_another_tokenizer(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "draft"
    draft_vocab(dataset, folder, 3)
    assert differences(dataset, folder) == []
    d2t = np.load(folder / "d2t.npy")
    np.save(folder / "d2t.npy", d2t + 1)
    assert differences(dataset, folder) == [f"d2t.npy: other than that of {dataset}"]
    assert main(["draft-vocab", str(dataset), str(folder), "--check"]) == 1
    assert "d2t.npy: other than that of" in capsys.readouterr().out
    write_manifest(read_manifest(dataset).model_copy(update={"tokenizer_digest": "0" * 64}), dataset)
    assert differences(dataset, folder)[0].startswith("tokenizer: expected 000000")


def test_what_does_not_fit_is_an_error(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"--top: expected 1 to 10, the size of the vocabulary; found 11\."):
        draft_vocab(dataset, tmp_path, 11)
    with pytest.raises(
        ParamsError, match=r"--vocab-size: expected 10 or more, as many as the tokenizer has ids; found 9"
    ):
        draft_vocab(dataset, tmp_path, 1, vocab_size=9)
    with pytest.raises(
        ValidationError, match=r"draft_vocab.json: missing; expected what `tokenmill draft-vocab` writes"
    ):
        differences(dataset, tmp_path / "nothing")
