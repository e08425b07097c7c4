"""A remapped dataset is the one that a build with the trimmed tokenizer makes, and needs no documents."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.builders.talks import hold_talks
from tests.conftest import Project, make_project
from tokenmill import Tokenizer
from tokenmill.dataset.manifest import Manifest, read_manifest

PROSE = [f"the cat number {n} sat on the mat, and {n * n} dogs ran{' around' * (n % 7)} it." for n in range(60)]
CODE = [f"def f{n}(x):\n    return x * {n * 7} + f{n // 2}(x)  # naïve\n" for n in range(50)]


def trimmed(project: Project, keep: int) -> None:
    """Builds, sets the dataset aside in `before`, and builds again with a trimmed tokenizer."""
    project.build()
    shutil.copytree(project.root / "data", project.root / "before")
    digest = Tokenizer.load(project.root / "before/tokenizer").digest
    trim = {"from": "before/tokenizer", "digest": digest, "keep": keep, "counts": None}
    project.set(train_vocab__trim=trim)
    project.build()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def said(manifest: Manifest) -> dict[str, Any]:
    """All that a manifest says, but for the keys of units, which are digests of the documents' files."""
    found: dict[str, Any] = json.loads(manifest.as_json())
    del found["digest"]
    for shard in found["shards"]:
        del shard["unit"]
    return found


def assert_same(project: Project, remapped: Path) -> None:
    """Compares a remapped dataset with that of the build: only the keys of units, and the digest over them, differ."""
    for name in ("tokens", "tables", "quarantine", "tokenizer"):
        built, found = (files_of(folder / name) for folder in (project.root / "data", remapped))
        for file in ("manifest.json", "README.md") if name == "tokens" else ():
            del built[file], found[file]
        assert built.keys() == found.keys()
        assert [file for file in built if built[file] != found[file]] == []
    assert said(read_manifest(remapped / "tokens")) == said(read_manifest(project.root / "data/tokens"))


def plain(project: Project) -> None:
    """One source, without file sets, in two files."""


def packed(project: Project) -> None:
    """Splits, packing, shuffling, columns that are kept, and a list of documents to leave out."""
    for path in (project.root / "data/raw").rglob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [json.dumps({**row, "lang": "en" if i % 3 else None, "repo": i // 4}) for i, row in enumerate(rows)]
        path.write_text("\n".join([*lines, "{", ""]), encoding="utf-8")
    (project.root / "drop.csv").write_text("id,reason\ncode/b.jsonl-3,asked\n", encoding="utf-8")
    project.set_drop("drop.csv")
    project.set(
        source__keep_columns=["lang"],
        source__on_bad_document="quarantine",
        source__bad_documents_max=9,
        encode__formats=["parquet", "arrow", "mds"],
        encode__splits={"train": 0.7, "validation": 0.3},
        encode__split_group="repo",
        encode__shuffle={"seed": 3, "epochs": 2},
        encode__pack={"length": 32, "mode": "concat"},
        encode__begin_of_document="<|endoftext|>",
    )


def mixed(project: Project) -> None:
    """Named sources with a weight and a budget, padded sequences, and an index of sequences beside the documents."""
    project.set(
        sources={
            "prose": {"glob": "data/raw/prose/*", "epochs": 1.5},
            "code": {"glob": "data/raw/code/*", "tokens": 900, "special_tokens_in_text": "allow", "license": "mit"},
        },
        train_vocab__special_tokens=["<|endoftext|>", "<|pad|>"],
        encode__formats=["megatron", "parquet", "nanogpt"],
        encode__shuffle={"seed": 3},
        encode__pack={"length": 48, "mode": "best_fit", "pad": "<|pad|>"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [plain, packed, mixed])
def test_a_remapped_dataset_has_the_bytes_of_a_build_and_is_verified(
    prepare: Callable[[Project], None], tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project", {"prose/a.jsonl": PROSE, "code/b.jsonl": CODE})
    project.set(train_vocab__vocab_size=380)
    prepare(project)
    trimmed(project, 300)
    done = project.cli("remap", "before/tokens", "remapped", "--to", "data/tokenizer", "--json")
    assert done.returncode == 0, done.stderr
    said_of = json.loads(done.stdout)["result"]
    assert 0 < said_of["n_again"] < said_of["n_tokens_before"] < said_of["n_tokens"]
    remapped = project.root / "remapped"
    assert said_of["tokens_digest"] == read_manifest(project.root / "data/tokens").tokens_digest()
    assert_same(project, remapped)
    verified = project.cli("verify", "remapped/tokens")
    assert verified.returncode == 0, verified.stdout
    shutil.rmtree(project.root / "data")  # the documents, too
    again = project.cli("remap", "before/tokens", "again", "--to", "remapped/tokenizer/tokenizer.json")
    assert again.returncode == 0, again.stderr
    assert files_of(project.root / "again/tokens") == files_of(remapped / "tokens")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a dataset, and a tokenizer trimmed from its own in `smaller`."""
    from tokenmill.training.trim import trim

    project = make_project(tmp_path_factory.mktemp("remap") / "project", {"a.jsonl": PROSE[:9]})
    project.set(train_vocab__vocab_size=300)
    project.build()
    old = Tokenizer.load(project.root / "data/tokenizer")
    trim(old, [0] * (old.id_max + 1), keep=280).tokenizer.save(project.root / "smaller")
    return project


def refused(project: Project, *arguments: str) -> str:
    done = project.cli("remap", *arguments)
    assert done.returncode == 2, done.stderr
    assert not (project.root / "out/tokens").exists()
    return done.stderr


def test_what_cannot_be_remapped_is_refused(small: Project) -> None:
    ask = ("data/tokens", "out", "--to", "smaller")
    assert "expected a new or an empty directory" in refused(small, "data/tokens", "data", "--to", "smaller")
    other = make_tokenizer(small.root / "other")
    assert "without some tokens; it has others" in refused(small, "data/tokens", "out", "--to", other)
    assert "expected the dataset's tokenizer" in refused(small, *ask, "--tokenizer", "smaller")
    table = small.root / "data/tables/documents.parquet"
    table.rename(table.with_suffix(".away"))
    assert "missing; expected a file that the manifest names" in refused(small, *ask)
    table.with_suffix(".away").rename(table)
    file = small.root / "data/tokens/documents/a.jsonl.parquet"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:-1] + b"x")
    assert "a.jsonl.parquet: expected the sha256" in refused(small, *ask)
    file.write_bytes(content)
    assert small.cli("remap", *ask).returncode == 0
    assert pq.read_table(small.root / "out/tokens/documents").num_rows == 9


def make_tokenizer(folder: Path) -> str:
    from tokenmill import Counter, train_vocab

    counter = Counter("gpt2")
    counter.update(["zzz qqq " * 9])
    train_vocab(counter, 260, "gpt2", ["<|endoftext|>"]).save(folder)
    return str(folder)


@pytest.mark.slow
def test_conversations_are_refused(project: Project) -> None:
    hold_talks(project).build()
    done = project.cli("remap", "data/tokens", "out", "--to", "data/tokenizer")
    assert done.returncode == 2
    assert "has conversations, and which part of a token is trained does not follow from its ids" in done.stderr
