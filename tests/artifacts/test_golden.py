"""Golden vectors find a tokenizer or a library that gives other ids than when the tokenizer was made."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Project
from tokenmill import Counter, Tokenizer, _core, train_vocab
from tokenmill.artifacts.golden import check_golden, checked_tokenizer, first_difference, write_golden
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.artifacts.golden_texts import HARD, PANEL
from tokenmill.config.source_params import Source
from tokenmill.config.sources import DocumentSource, Reading
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.provenance import Samples
from tokenmill.corpus.shards import Shard, find_shards
from tokenmill.errors import TokenizerError

SOURCE = Source(
    glob=["*.txt"],
    text_column="text",
    id_column=None,
    text_separator="\n",
    unit_bytes_min=0,
    unit_bytes_max=1000,
    on_bad_document="fail",
    bad_documents_max=0,
    on_bad_shard="fail",
    drop=None,
)


def documents(directory: Path, glob: str) -> list[Shard]:
    source = DocumentSource(None, (glob,), Reading("text", None, "\n"), "as_text", epochs=1.0, tokens=None)
    return find_shards(directory, glob, source=source)


def made(directory: Path, pattern: str | None = "gpt2") -> Tokenizer:
    counter = Counter(pattern)
    counter.update([*PANEL.values(), *PANEL.values()])
    tokenizer = train_vocab(counter.finish(), vocab_size=900, pattern=pattern, special_tokens=["<|endoftext|>"])
    tokenizer.save(directory)
    write_golden(make_golden(directory, tokenizer, {"corpus/a": "the mill"}), directory)
    return tokenizer


def test_all_engines_give_the_ids_of_the_vectors(tmp_path: Path) -> None:
    tokenizer = made(tmp_path)
    assert list(check_golden(tmp_path, tokenizer)) == ["core", "tokenizers", "tiktoken"]
    vectors = json.loads((tmp_path / "golden.json").read_text(encoding="ascii"))["vectors"]
    assert {one["name"]: one["text"] for one in vectors} == {
        **{f"panel/{name}": text for name, text in PANEL.items()},
        **{f"hard/{name}": text for name, text in HARD.items()},
        "corpus/a": "the mill",
    }
    assert all(tokenizer.decode_bytes(one["ids"]) == one["text"].encode() for one in vectors)


@pytest.mark.skipif(
    "NEXT_TOKENIZERS" not in os.environ, reason="needs tokenizers 1.0, which `make test-newest` installs"
)
@pytest.mark.parametrize("pattern", [None, *_core.patterns()])
def test_the_next_tokenizers_gives_the_ids_of_the_vectors(tmp_path: Path, pattern: str | None) -> None:
    """tokenmill does not use it yet, but files of today must keep their ids in it."""
    made(tmp_path, pattern)
    code = """
import json, sys, tokenizers
judge = tokenizers.Tokenizer.from_file("tokenizer.json")
vectors = json.load(open("golden.json"))["vectors"]
other = [one["name"] for one in vectors if judge.encode(one["text"], encode_special_tokens=True).ids != one["ids"]]
print(tokenizers.__version__, len(vectors), other)
"""
    at = {**os.environ, "PYTHONPATH": os.environ["NEXT_TOKENIZERS"]}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=at, capture_output=True, text=True)
    if "ValueError" in done.stderr:
        pytest.skip(f"it does not load the file: {done.stderr.splitlines()[-1]}")
    assert re.fullmatch(r"1\.\S+ \d+ \[\]\n", done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("pattern", [None, "deepseek", "starcoder"])
def test_a_split_that_tiktoken_does_not_have_is_checked_with_the_others(tmp_path: Path, pattern: str | None) -> None:
    assert list(check_golden(tmp_path, made(tmp_path, pattern))) == ["core", "tokenizers"]


def test_a_changed_id_names_engine_text_and_ids(tmp_path: Path) -> None:
    tokenizer = made(tmp_path)
    golden = json.loads((tmp_path / "golden.json").read_text(encoding="ascii"))
    vector = next(one for one in golden["vectors"] if one["name"] == "panel/greek")
    vector["ids"][3] += 1
    (tmp_path / "golden.json").write_text(json.dumps(golden), encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"core .*panel/greek: 'Ο μύλος.* from token 3 on: found "):
        check_golden(tmp_path, tokenizer)


def test_a_library_that_gives_other_ids_is_named(tmp_path: Path) -> None:
    tokenizer = made(tmp_path)
    lines = (tmp_path / "vocab.tiktoken").read_text(encoding="ascii").splitlines()
    one, other = lines[300].split(), lines[301].split()
    lines[300:302] = [f"{one[0]} {other[1]}", f"{other[0]} {one[1]}"]
    (tmp_path / "vocab.tiktoken").write_text("\n".join(lines) + "\n", encoding="ascii")
    with pytest.raises(TokenizerError, match=r"tiktoken .* no longer gives the ids"):
        check_golden(tmp_path, tokenizer)


def test_a_tokenizer_is_read_and_checked_again_when_a_file_changes(tmp_path: Path) -> None:
    made(tmp_path)
    first = checked_tokenizer(tmp_path, 1)
    assert list(check_golden(tmp_path, first)) == ["core", "tokenizers", "tiktoken"]
    assert checked_tokenizer(tmp_path, 1)._tokens is first._tokens
    golden = tmp_path / "golden.json"
    golden.write_bytes(golden.read_bytes().replace(b'"ids":[', b'"ids":[0,', 1))
    with pytest.raises(TokenizerError, match="from token 0 on"):
        checked_tokenizer(tmp_path, 1)
    made(tmp_path, None)
    assert list(check_golden(tmp_path, checked_tokenizer(tmp_path, 1))) == ["core", "tokenizers"]


def test_vectors_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    made(tmp_path)
    counter = Counter("gpt2")
    counter.update(["ab ab"])
    with pytest.raises(TokenizerError, match="made for the tokenizer"):
        check_golden(tmp_path, train_vocab(counter.finish(), vocab_size=257, pattern="gpt2"))


def test_the_sample_is_the_same_each_time_and_from_every_shard(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{name} document {i}" for i in range(50)), encoding="utf-8")
    shards = documents(tmp_path, "*.txt")
    sample = Samples(shards).texts(SOURCE, UNBOUNDED, None)
    assert sample == Samples(shards[::-1]).texts(SOURCE, UNBOUNDED, None)
    assert [name.split("/")[1] for name in sample] == ["a.txt", "b.txt", "c.txt"]
    assert all(text.startswith(name.split("/")[1][0]) for name, text in sample.items())


def test_the_sample_names_the_row_and_passes_over_bad_documents(tmp_path: Path) -> None:
    source = SOURCE.model_copy(update={"on_bad_document": "quarantine"})
    (tmp_path / "all.jsonl").write_text("no JSON\n", encoding="utf-8")
    (tmp_path / "some.jsonl").write_text('no JSON\n{"text": "the mill"}\n', encoding="utf-8")
    assert Samples(documents(tmp_path, "*.jsonl")).texts(source, UNBOUNDED, None) == {"corpus/some.jsonl/1": "the mill"}


def test_first_difference_is_none_where_ids_are_equal(tmp_path: Path) -> None:
    tokenizer = made(tmp_path)
    vectors = make_golden(tmp_path, tokenizer, {}).vectors
    assert first_difference(tokenizer.encode, vectors) is None
    assert "hard/empty" in (first_difference(lambda text: [*tokenizer.encode(text), 0], vectors[len(PANEL) :]) or "")


@pytest.mark.slow
def test_a_build_with_a_changed_id_fails_before_it_encodes(project: Project) -> None:
    project.build()
    path = project.root / "data/tokenizer/golden.json"
    golden = json.loads(path.read_text(encoding="ascii"))
    golden["vectors"][0]["ids"].append(0)
    path.unlink()
    path.write_text(json.dumps(golden), encoding="utf-8")
    done = project.run("tokenmill", "build", "--only", "encode", DVC_STAGE="encode")
    assert done.returncode == 2
    assert "panel/latin/english" in done.stderr
    assert "no longer gives the ids" in done.stderr
