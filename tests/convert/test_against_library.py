"""`tokenmill check --against` shows the first document whose ids are not those of the `tokenizers` library."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import tokenizers
import zstandard

from tests.builders.tokenizer_files import DOCUMENT, changed
from tests.builders.trained import TEXT, TOKENIZER, TRICKY
from tokenmill.cli.main import main
from tokenmill.features.convert import against_library


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    TOKENIZER.save(tmp_path / "tokenizer")
    return str(tmp_path / "tokenizer")


def against(tokenizer: str, *arguments: str) -> int:
    return main(["check", tokenizer, "--against", *arguments])


def corpus(folder: Path) -> Path:
    """The same texts in each format, under three names of the column."""
    texts = [text.replace("\x00", "") for text in (*TEXT, *TRICKY)]
    lines = "".join(json.dumps({"content": text}) + "\n" for text in texts).encode()
    folder.mkdir()
    pq.write_table(pa.table({"path": texts, "text": texts}), folder / "a.parquet")
    feather.write_feather(pa.table({"body": texts}), folder / "b.arrow", compression="uncompressed")
    (folder / "c.jsonl").write_bytes(lines)
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "e.jsonl.zst").write_bytes(zstandard.compress(lines))
    (folder / "f.txt").write_text("\n".join(texts), encoding="utf-8")
    return folder


def test_equal_ids_in_every_format(tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = corpus(tmp_path / "corpus")
    n_documents = 5 * (len(TEXT) + len(TRICKY)) + 1
    assert against(tokenizer, str(folder)) == 0
    assert f"{n_documents:,} documents equal, of {n_documents:,}" in capsys.readouterr().out
    assert against(tokenizer, *map(str, folder.iterdir()), "--special", "allow", "--json") == 0
    assert json.loads(capsys.readouterr().out)["result"]["difference"] is None
    assert against(str(Path(tokenizer) / "vocab.tiktoken"), str(folder / "c.jsonl"), "--pattern", "gpt2") == 0


def test_the_first_difference_is_shown_with_its_place(
    tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = changed("model", "merges", to=[pair for pair in DOCUMENT["model"]["merges"] if pair != ["Ġ", "t"]])
    monkeypatch.setattr(against_library, "reference_of", lambda *_: tokenizers.Tokenizer.from_str(json.dumps(other)))
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "cat"}\n{"text": "é to"}\n{"text": " to"}\n', encoding="utf-8")
    assert against(tokenizer, str(path)) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("a.jsonl, row 1: differs from token 2, byte 2 on")
    assert "' t" in printed[1] and "' '" in printed[2] and "é to" in printed[3]


def test_a_byte_without_a_token_is_counted_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vocab = {token: id for token, id in DOCUMENT["model"]["vocab"].items() if token != "ñ"}  # the byte 0xf1
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed("model", "vocab", to=vocab)), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "b\U00040000"}\n', encoding="utf-8")
    assert against(str(tmp_path), str(tmp_path / "a.jsonl")) == 0
    printed = capsys.readouterr().out
    assert "1 document refused here; tokenizers drops bytes there. First: " in printed
    assert "row 1: the vocabulary has no token for the byte 0xf1" in printed
    assert "1 document equal, of 2" in printed


def test_a_text_that_a_normalizer_makes_far_longer_is_not_given_to_the_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would end the process."""
    document = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 900},
        "model": {"type": "WordLevel", "unk_token": "u", "vocab": {"u": 0, "b": 1}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a" * 1_000_000}) + '\n{"text": "x"}\n', encoding="utf-8")
    assert against(str(tmp_path), str(tmp_path / "a.jsonl")) == 0
    printed = capsys.readouterr().out
    assert "1 document equal, of 2" in printed and "more than 6 times as long" in printed


def test_a_user_error_is_one_line(tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"other": "a"}\n', encoding="utf-8")
    (tmp_path / "empty.txt").touch()
    for arguments, said in (
        ([tokenizer, str(tmp_path / "a.jsonl")], "Set --text-column, which holds for all files, to one of them"),
        ([str(tmp_path), "x.txt"], "tokenizer.json"),
        ([tokenizer, str(tmp_path / "empty.txt")], "empty.txt: no documents"),
        ([tokenizer, "none.txt"], "--against: expected files that match 'none.txt'"),
        ([tokenizer, str(tmp_path / "a.jsonl"), "--text-separator", ""], "--text-separator: expected a text"),
    ):
        assert against(*arguments) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("tokenmill: error[")
        assert said in printed
    assert main(["check", tokenizer, "--special", "allow"]) == 2
    assert "none are named" in capsys.readouterr().err
