"""`tokenmill check` says what a tokenizer is and what is odd about it, without a project, and refuses what a build would."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken.load

from tests.builders.tokenizer_files import DOCUMENT, GPT2, NEXT_ID, VOCAB, changed, with_added
from tests.builders.trained import TOKENIZER
from tests.conftest import REPOSITORY
from tokenmill import Tokenizer
from tokenmill.cli.main import main
from tokenmill.errors import TokenizerError
from tokenmill.features.convert.inspect import check_tokenizer


def checked(tmp_path: Path, document: dict[str, Any]) -> dict[str, Any]:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return check_tokenizer(path)


def oddities(tmp_path: Path, document: dict[str, Any]) -> dict[str, list[str]]:
    return {one["what"]: one["examples"] for one in checked(tmp_path, document)["oddities"]}


@pytest.mark.parametrize(
    "model",
    [
        {"type": "BPE", "vocab": {}, "merges": []},
        {"type": "WordLevel", "vocab": {}, "unk_token": "x"},
        {"type": "Unigram", "vocab": [], "unk_id": None},
    ],
)
def test_an_empty_vocabulary_is_refused(tmp_path: Path, model: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match=r"model\.vocab is empty; expected one token or more"):
        checked(tmp_path, {**DOCUMENT, "model": {**DOCUMENT["model"], **model}, "added_tokens": []})


def test_a_file_beside_a_tokenizer_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    os.truncate(tmp_path / "tokenizer_config.json", 6 * 2**30)
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json: cannot be read: it has 6,442,450,944 bytes"):
        check_tokenizer(tmp_path)


def test_it_says_what_a_tokenizer_is(tmp_path: Path) -> None:
    found = checked(tmp_path, DOCUMENT)
    assert (found["kind"], found["engine"], found["engine_reason"]) == ("byte-level BPE", "core", None)
    assert (found["vocab_size"], found["id_max"], found["n_merges"]) == (1200, 1199, len(DOCUMENT["model"]["merges"]))
    assert (found["pattern"], found["normalizer"], found["digest"]) == ("gpt2", None, TOKENIZER.digest)
    assert found["special_tokens"] == {"<|endoftext|>": 0, "<|pad|>": 1}
    assert found["oddities"] == []


def test_it_says_why_the_other_engine_runs(tmp_path: Path) -> None:
    found = checked(tmp_path, changed("normalizer", to={"type": "NFKC"}))
    assert (found["engine"], found["engine_reason"]) == ("tokenizers", "normalizer is NFKC")


# "ab" + "c" is merged before "b" + "c", so nothing leads to "bc", nor from there to "bcd"; "xyz" has no merge at all.
MERGES = [["a", "b"], ["ab", "c"], ["b", "c"], ["a", "bc"], ["bc", "d"]]
TOKENS = ["ab", "abc", "bc", "bcd", "xyz"]


def small() -> dict[str, Any]:
    letters = [token for token in VOCAB if len(token) == 1]
    vocab = {token: id for id, token in enumerate([*letters, *TOKENS])}
    return {**DOCUMENT, "added_tokens": [], "model": {**DOCUMENT["model"], "vocab": vocab, "merges": MERGES}}


def test_dead_tokens_and_merges_are_named(tmp_path: Path) -> None:
    document = small()
    found = oddities(tmp_path, document)
    ids = document["model"]["vocab"]
    assert found["tokens that no text leads to"] == [f"{ids['xyz']}: 'xyz'"]
    assert found["merges that no text uses"] == ["'a' 'bc'"]
    document["model"]["ignore_merges"] = True
    assert "tokens that no text leads to" not in oddities(tmp_path, document)


def test_missing_bytes_holes_twins_and_loud_specials_are_named(tmp_path: Path) -> None:
    vocab = {token: id for token, id in VOCAB.items() if token != "ÿ"}  # the byte 0xff
    assert oddities(tmp_path, changed("model", "vocab", to=vocab)) == {
        "ids with holes": [str(VOCAB["ÿ"])],
        "bytes without a token: text with them is an error": ["0xff"],
    }
    document = with_added(
        {"content": " the", "special": False},
        {"content": "stop", "special": True},
        {"content": "\t \t", "special": True},
    )
    document["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    document["post_processor"] = {"type": "BertProcessing", "sep": ["<|pad|>", 1], "cls": ["<|endoftext|>", 0]}
    document["pre_tokenizer"] = {**GPT2, "add_prefix_space": True}
    found = oddities(tmp_path, document)
    assert found["special tokens that look like text"] == ["stop", r"'\t \t'"]
    assert found["truncation is not applied when encoding"] == []
    assert found["added tokens that are not special: found in text"] == [" the"]
    assert found["tokens with the bytes of another"] == [f"{VOCAB['Ġthe']}: ' the'", f"{NEXT_ID}: ' the'"]
    assert found["post_processor is not applied when encoding"] == ["BertProcessing"]
    assert "text gets a space in front, which decoding gives back" in found


def test_fields_that_nothing_reads_are_named(tmp_path: Path) -> None:
    document = changed("model", "ignore_merge", to=True)
    document["added_tokens"][1]["nomralized"] = True
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{**GPT2, "use_regexes": False}]}
    found = oddities(tmp_path, document)
    assert found == {
        "fields that nothing reads": [
            "added_tokens[1].nomralized",
            "model.ignore_merge",
            "pre_tokenizer.pretokenizers[0].use_regexes",
        ]
    }


def test_the_command_prints_text_or_json_and_ends_with_0_or_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TOKENIZER.save(tmp_path)
    assert main(["check", str(tmp_path)]) == 0
    assert "engine          core\n" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "tokenizer.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["digest"] == TOKENIZER.digest
    assert main(["check", str(tmp_path / "vocab.tiktoken"), "--pattern", "gpt2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["pattern"] == "gpt2"
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert main(["check", str(tmp_path), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)["error"]
    assert (found["code"], found["what"]) == (
        "TM301",
        "is no tokenizer.json, which has a model; found the fields (none).",
    )
    assert main(["check", str(tmp_path / "none.json")]) == 2
    assert "tokenmill: error[TM301]: " in capsys.readouterr().err


def test_the_command_works_without_a_project(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    command = [sys.executable, "-m", "tokenmill", "check", "."]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.tiktoken",
    ]


def test_a_token_cannot_write_to_the_terminal_what_it_likes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(with_added({"content": "\x1b[2J\u202e", "special": True})), encoding="utf-8")
    assert main(["check", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\u202e" not in printed
    assert "\\x1b[2J" in printed


@pytest.mark.parametrize("has_bytes", [True, False])
def test_characters_become_the_unknown_token_only_where_their_bytes_have_none(tmp_path: Path, has_bytes: bool) -> None:
    texts = [*(f"<0x{byte:02X}>" for byte in range(256 if has_bytes else 255)), "<unk>", "▁", "a"]
    model = {"type": "BPE", "vocab": {text: id for id, text in enumerate(texts)}, "merges": [], "unk_token": "<unk>"}
    normalizer = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    found = oddities(tmp_path, {"normalizer": normalizer, "model": {**model, "byte_fallback": True}})
    assert ("characters without a token become the unknown token" in found) is not has_bytes


def test_tokens_of_the_files_beside_are_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    (tmp_path / "added_tokens.json").write_text('{"<|im_end|>": 1200}', encoding="utf-8")
    said = {one["what"]: one["examples"] for one in check_tokenizer(tmp_path)["oddities"]}
    assert said["added tokens of the files beside tokenizer.json, as transformers has them"] == ["<|im_end|> = 1200"]
    said = {one["what"]: one["examples"] for one in check_tokenizer(tmp_path / "tokenizer.json")["oddities"]}
    assert said["files beside it would add or change tokens, or the split; this file counts alone"] == [
        "<|im_end|> = 1200"
    ]


@pytest.mark.parametrize(
    ("regex", "dropped"),
    [(r"\p{L}+|[^\p{L}\s]+", True), (r"\s+(?!\S)|\S+", True), (r"\S+|\s+", False), (r"[^\n]+|\n", False)],
)
def test_text_that_tiktoken_would_drop_is_told(tmp_path: Path, regex: str, dropped: bool) -> None:
    TOKENIZER.save(tmp_path)
    path = tmp_path / "vocab.tiktoken"
    found = {one["what"]: one["examples"] for one in check_tokenizer(path, regex)["oddities"]}
    ranks = tiktoken.load.load_tiktoken_bpe(str(path))
    peer = tiktoken.Encoding(
        "peer", pat_str=regex, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 0, "<|pad|>": 1}
    )
    assert (peer.decode(peer.encode("the cat.")) != "the cat.") is dropped
    assert Tokenizer.load(path, regex).decode(Tokenizer.load(path, regex).encode("the cat.")) == "the cat."
    said = "text that the pattern does not match: kept here, dropped by tiktoken"
    assert (said in found) is dropped
    assert not dropped or "' '" in found[said]
