"""A file that is no tokenizer.json is named for what it is, with what to do."""

import base64
from pathlib import Path

import pytest

from tokenmill import Tokenizer
from tokenmill.cli.main import main
from tokenmill.errors import TokenizerError


def sentencepiece_model() -> bytes:
    """The beginning of a SentencePiece model: pieces with their scores and types, in the wire format of Protocol Buffers."""
    pieces = [b"\n" + bytes([len(text)]) + text + b"\x15\0\0\0\0\x18\x02" for text in (b"<unk>", b"<s>", b"</s>")]
    return b"".join(b"\n" + bytes([len(piece)]) + piece for piece in pieces)


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model", "tokenizer.json"])
def test_a_sentencepiece_model_is_named_as_such(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(sentencepiece_model())
    with pytest.raises(TokenizerError, match=r"a SentencePiece model.*tokenmill convert /"):
        Tokenizer.load(tmp_path / name)


@pytest.mark.parametrize("names", [["tokenizer.model"], ["vocab.json", "merges.txt"], ["model.gguf"]])
def test_a_folder_without_a_tokenizer_json_says_how_to_make_one(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(TokenizerError, match=r"there is no such file.*tokenmill convert /"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tekken_240911.json", "tokenmill convert /"),
        ("cl100k_base.tiktoken", r"Name /.*cl100k_base\.tiktoken itself, with pattern= \(--pattern\)"),
        ("vocab.txt", "save_pretrained of transformers writes a tokenizer.json with all tokens"),
    ],
)
def test_a_folder_with_another_file_of_a_tokenizer_says_what_keeps_all_tokens(
    tmp_path: Path, name: str, hint: str
) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(TokenizerError, match=hint):
        Tokenizer.load(tmp_path)


def test_a_folder_of_a_token_dataset_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens/manifest.json").write_text("{}")
    with pytest.raises(TokenizerError, match=f"This is a token dataset.*{tmp_path}/tokenizer"):
        Tokenizer.load(tmp_path / "tokens")


def test_a_vocabulary_of_tiktoken_with_another_name_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(base64.b64encode(b"!") + b" 0\n" + base64.b64encode(b'"') + b" 1\n")
    with pytest.raises(TokenizerError, match=r"a vocabulary of tiktoken.*\.tiktoken"):
        Tokenizer.load(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "content",
    [
        '{"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", NUMBER]]}}',
        '{"model": {"type": "BPE", "vocab": {"a": NUMBER}, "merges": []}}',
        '{"truncation": {"max_length": NUMBER}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}',
    ],
)
def test_a_number_that_json_does_not_have_is_refused(
    tmp_path: Path, number: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content.replace("NUMBER", number))
    assert main(["check", str(path), "--json"]) == 2
    said = capsys.readouterr().out
    assert "not valid JSON" in said and str(path) in said
