"""The source of each document of a mixture, as the reader gives it, compared with where its words come from."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill
from tests.builders.corpora import weigh
from tests.builders.teams import build, cli
from tests.conftest import Project, make_project
from tokenmill.dataset.manifest import Manifest, read_manifest, write_manifest
from tokenmill.errors import ParamsError
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.token_dataset import TokenDataset

SOURCES = ["books", "code", "web"]
DOCUMENTS = {
    f"{source}/{n}.jsonl": [f"{source[0] * (i % 7 + 2)}{i}{source[0] * (i % 40)}" for i in range(n, n + 30)]
    for source in SOURCES
    for n in (1, 40)
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Three sources, of which each document has a letter of its own and digits."""
    project = make_project(tmp_path_factory.mktemp("sources") / "project", DOCUMENTS)
    weigh(project, web={"epochs": 1.5}, code={}, books={})
    return project


def build_with(project: Project, **encode: Any) -> Path:
    none = {"formats": ["arrow"], "splits": {}, "shuffle": None, "pack": None}
    project.set(**{f"encode__{key}": value for key, value in {**none, **encode}.items()})
    build(project)
    return project.root / "data/tokens"


def check(dataset: TokenDataset, project: Project) -> None:
    """The naive twin: decodes what is behind each start, and looks at its letter."""
    tokenizer = Tokenizer.load(project.root / "data/tokenizer")
    assert [one.name for one in dataset.manifest.sources] == SOURCES
    seen = set()
    for i in range(len(dataset)):
        ids, starts, found = dataset[i], dataset.starts(i).tolist(), dataset.source_ids(i)
        assert found.dtype == np.int32 and len(found) == len(starts)
        for start, stop, source in zip(starts, [*starts[1:], len(ids)], found.tolist(), strict=True):
            letters = set(tokenizer.decode(ids[start:stop].tolist())) & set("bcw")
            assert letters <= {SOURCES[source][0]}, (i, letters, source)
            seen.add(source)
    assert seen == {0, 1, 2}


PACK = {"length": 24, "mode": "best_fit"}


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [None, {"seed": 3}], ids=["in order", "shuffled"])
@pytest.mark.parametrize("pack", [None, PACK, {**PACK, "mode": "concat"}], ids=["documents", "best_fit", "concat"])
def test_the_reader_names_the_source_of_each_document(
    project: Project, pack: dict[str, Any] | None, shuffle: dict[str, int] | None
) -> None:
    all_formats = ["parquet", "arrow", "megatron", "datatrove", "olmo", "nanogpt", "llmc"]
    formats = all_formats if pack is None or (shuffle is None and pack["mode"] == "concat") else all_formats[:2]
    tokens = build_with(project, formats=formats, shuffle=shuffle, pack=pack, min_parts=4)
    for format in formats:
        dataset = tokenmill.open(tokens, format=format)
        check(dataset, project)
        check(dataset.shuffle(7), project)
        if pack is None and shuffle is None:
            check(dataset.sequences(20), project)
    assert ("source_ids" in (tokens / "manifest.json").read_text()) == (shuffle is not None)
    done = cli(project, "verify", "--no-source")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [None, {"seed": 3, "epochs": 2}], ids=["in order", "shuffled"])
def test_an_index_names_the_source_of_each_document(project: Project, shuffle: dict[str, int] | None) -> None:
    tokens = build_with(project, shuffle=shuffle, pack={**PACK, "output": "index"})
    check(tokenmill.open(tokens).packed(), project)
    check(tokenmill.open(tokens), project)
    assert cli(project, "verify", "--no-source").returncode == 0


@pytest.mark.slow
def test_documents_without_file_sets_have_the_source_of_their_file(project: Project, tmp_path: Path) -> None:
    weigh(project, web={}, code={}, books={})
    tokens = build_with(project, formats=["parquet"], min_parts=None)
    assert not (tokens / "parquet").exists()
    check(tokenmill.open(tokens), project)
    check(tokenmill.open(tokens).sequences(20), project)
    weigh(project, web={"epochs": 1.5}, code={}, books={})


@pytest.mark.slow
def test_verify_finds_a_changed_source(project: Project, tmp_path: Path) -> None:
    tokens = build_with(project, formats=["olmo", "arrow"], shuffle={"seed": 3}, pack=PACK | {"pad": "<|endoftext|>"})
    shutil.copytree(tokens, tmp_path / "tokens")
    shutil.copytree(project.root / "data/tokenizer", tmp_path / "tokenizer")
    path = tmp_path / "tokens/olmo/part-00000.starts.arrow"
    content = path.read_bytes()
    at = content.rindex(np.array([1, 1], np.int32).tobytes())
    path.write_bytes(content[:at] + np.array([1, 2], np.int32).tobytes() + content[at + 8 :])
    done = cli(project, "verify", "--no-source", str(tmp_path / "tokens"))
    assert done.returncode == 1 and "source_ids" in done.stdout, done.stdout


@pytest.mark.slow
def test_a_shuffled_mixture_of_an_earlier_tokenmill_says_that_it_lacks_sources(project: Project) -> None:
    tokens = build_with(project, shuffle={"seed": 3})
    manifest = read_manifest(tokens)
    assert manifest.files is not None
    older: Manifest = manifest.model_copy(update={"files": manifest.files.model_copy(update={"source_ids": False})})
    shutil.copytree(tokens, tokens.parent / "older")
    write_manifest(older, tokens.parent / "older")
    assert json.loads((tokens.parent / "older/manifest.json").read_text())["files"].keys().isdisjoint({"source_ids"})
    with pytest.raises(ParamsError, match="from an earlier tokenmill"):
        tokenmill.open(tokens.parent / "older", format="arrow").source_ids(0)
    shutil.rmtree(tokens.parent / "older")
