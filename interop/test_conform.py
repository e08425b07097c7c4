"""Libraries that read a tokenizer give its ids, or are named: the table of docs/guides/conform.md, by `make test-conform`."""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.small_tokenizer import small_tokenizer, with_card
from tokenmill import Tokenizer
from tokenmill.features.conform.libraries import conform
from tokenmill.features.conform.program.compare import lines_of
from tokenmill.features.convert.convert import convert

pytest.importorskip("kitoken", reason="runs in the environment of make test-conform")

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared/tokenizers"
FOLDERS = {"llama-2": "llama-2-spm"}


def documented() -> dict[str, dict[str, str]]:
    """The results of the guide's table by tokenizer and library."""
    rows = re.findall(r"^\| (.+) \|$", (ROOT / "docs/guides/conform.md").read_text(encoding="utf-8"), re.MULTILINE)
    table = [row.split(" | ") for row in rows if len(row.split(" | ")) == 11]
    libraries = table[0][1:]
    return {row[0]: {name: row[i + 1].split()[0] for i, name in enumerate(libraries)} for row in table[1:]}


def tokenizer(name: str, folder: Path) -> Path:
    """The tokenizer of a row, as a build saves it."""
    if "pattern " in name:
        return small_tokenizer(folder, name.partition("pattern ")[2])
    source = SHARED / FOLDERS.get(name, name)
    if not source.is_dir():
        pytest.skip("a tokenizer that is not the project's own")
    loaded = Tokenizer.load(source)
    folder.mkdir()
    loaded.save(folder)
    return with_card(folder, loaded)


@pytest.mark.parametrize("name", documented())
def test_the_libraries_give_the_results_of_the_guide(name: str, tmp_path: Path) -> None:
    expected = documented()[name]
    found = conform(tokenizer(name, tmp_path / "tokenizer"))
    print(f"\n{name}", *lines_of(found), sep="\n")
    by_library = {one.consumer: one.verdict for one in found}
    assert {one: by_library[one] for one in expected if by_library[one] != "not installed"} == {
        one: word for one, word in expected.items() if by_library[one] != "not installed"
    }
    assert by_library["transformers-slow"] == by_library["transformers"]
    assert by_library["tokenizers-1.0"] != "not installed"
    for one in found:
        if one.consumer in ("transformers", "vllm", "sglang") and one.compared is not None:
            assert one.compared["chat"] == (50 if "pattern " in name else 0)
    assert by_library["sentencepiece"] == ("same" if name == "llama-2" else "cannot")


def test_mistral_common_gives_the_ids_of_its_own_file(tmp_path: Path) -> None:
    made = small_tokenizer(tmp_path / "small")
    lines = [line.split()[0] for line in (made / "vocab.tiktoken").read_bytes().splitlines()]
    merged = [base64.b64decode(line) for line in lines if len(base64.b64decode(line)) > 1]
    tokens = [*(bytes([byte]) for byte in range(256)), *merged]
    [pattern] = Tokenizer.load(made).steps or ()
    config = {
        "pattern": pattern,
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": len(tokens) + 3,
        "default_num_special_tokens": 3,
        "version": "v3",
    }
    vocab = [
        {"rank": i, "token_bytes": base64.b64encode(one).decode(), "token_str": None} for i, one in enumerate(tokens)
    ]
    special = [{"rank": i, "token_str": one, "is_control": True} for i, one in enumerate(["<unk>", "<s>", "</s>"])]
    file = tmp_path / "tekken.json"
    file.write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": special}), encoding="utf-8")
    convert(file, tmp_path / "tokenizer")
    # Here conform has `convert` write a tekken.json; then it takes the one that is there.
    assert [one.verdict for one in conform(tmp_path / "tokenizer", ["tokenizers", "mistral-common"])] == ["same"] * 2
    shutil.copy(file, tmp_path / "tokenizer")
    assert [one.verdict for one in conform(tmp_path / "tokenizer", ["tokenizers", "mistral-common"])] == ["same"] * 2
    vocab[300]["token_bytes"], vocab[301]["token_bytes"] = vocab[301]["token_bytes"], vocab[300]["token_bytes"]
    changed = json.dumps({"config": config, "vocab": vocab, "special_tokens": special})
    (tmp_path / "tokenizer/tekken.json").write_text(changed, encoding="utf-8")
    assert [one.verdict for one in conform(tmp_path / "tokenizer", ["tokenizers", "mistral-common"])] == [
        "same",
        "other",
    ]


@pytest.mark.parametrize("library", ["tokenizers", "tokenizers-1.0", "transformers", "fastokens", "gigatoken"])
def test_a_changed_tokenizer_json_is_found_by_the_program_in_every_library(library: str, tmp_path: Path) -> None:
    folder = small_tokenizer(tmp_path / "tokenizer")
    command = [sys.executable, str(folder / "conform.py"), "--with", library]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    document["model"]["merges"][5:7] = document["model"]["merges"][6:4:-1]
    document["model"]["merges"] = document["model"]["merges"][:400]
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert f"{library}" in done.stdout and "other" in done.stdout
