"""locate finds the document of each token and the tokens of each document, as a walk over the whole dataset does."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.teams import cli
from tests.conftest import Project, make_project
from tokenmill import Counter, train_vocab
from tokenmill.errors import ParamsError, TokenizerError, ValidationError
from tokenmill.features.view.locate import (
    N_LISTED_MAX,
    LocatedDocument,
    lines_of,
    locate_digest,
    locate_id,
    locate_token,
)
from tokenmill.tokenizer.tokenizer import Tokenizer

DOCUMENTS = {
    "a.jsonl": [f"the {n} cat sat on mat {n * n}" for n in range(12)],
    "b.jsonl": ["", "dogs é 東京", "", *["the same"] * 25, ""],
    "de/c.jsonl": [f"die Katze {n} saß auf der Matte" for n in range(7)],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with documents that have no token, and a document index of many row groups."""
    project = make_project(tmp_path_factory.mktemp("locate") / "project", DOCUMENTS)
    project.set(encode__end_of_document=None)
    project.build()
    path = project.root / "data/tables/documents.parquet"
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(table, path, row_group_size=5)
    return project


@pytest.fixture
def dataset(built: Project) -> Path:
    return built.root / "data/tokens"


def walk(dataset: Path) -> Iterator[tuple[str, int, str, list[int]]]:
    """File, row in it, id and token ids of each document, in the order of the manifest."""
    for shard in json.loads((dataset / "manifest.json").read_text())["shards"]:
        rows = pq.read_table(dataset / shard["name"], partitioning=None).to_pylist()
        yield from ((shard["name"], i, row["id"], row["input_ids"]) for i, row in enumerate(rows))


@pytest.mark.slow
def test_each_token_is_found_in_its_document(dataset: Path) -> None:
    tokenizer = Tokenizer.load(dataset.parent / "tokenizer")
    position = 0
    for file, row, id, ids in walk(dataset):
        for at, token in enumerate(ids):
            found = locate_token(dataset, position, None)
            [document] = found.documents
            assert (document.file, document.row_in_file, document.id) == (file, row, id)
            assert (document.first_token, document.n_tokens) == (position - at, len(ids))
            assert found.token is not None
            assert (found.token.id, found.token.position_in_document) == (token, at)
            assert (found.token.begins, found.token.ends) == (at == 0, at == len(ids) - 1)
            assert bytes.fromhex(found.token.bytes) == tokenizer.token_bytes(token)
            assert found.token.before == tokenizer.decode(ids[max(0, at - 20) : at])
            assert found.token.after == tokenizer.decode(ids[at + 1 : at + 21])
            position += 1
    assert position > 300
    found = locate_token(dataset, position, None)
    assert (found.n_found, found.token) == (0, None)
    assert list(lines_of(found)) == [
        f"token {position:,} is not in {dataset}, which has the tokens 0 to {position - 1:,}."
    ]


def test_each_document_is_found_by_id_and_by_digest(dataset: Path) -> None:
    first_token = 0
    for file, row, id, ids in walk(dataset):
        name, _, i = id.rpartition("-")
        sha256 = hashlib.sha256(DOCUMENTS[name][int(i)].encode()).hexdigest()
        [document] = locate_id(dataset, id).documents
        n_bytes = len(DOCUMENTS[name][int(i)].encode())
        assert document == LocatedDocument(
            id, f"data/raw/{name}", int(i), file, row, first_token, len(ids), n_bytes, sha256
        )
        same = [one for some in DOCUMENTS.values() for one in some if one == DOCUMENTS[name][int(i)]]
        for digits in (8, 9, 63, 64):
            found = locate_digest(dataset, sha256[:digits].upper())
            assert found.n_found == len(same)
            assert len(found.documents) == min(len(same), N_LISTED_MAX)
            if len(same) == 1:
                assert found.documents == [document]
        first_token += len(ids)
    assert list(lines_of(locate_digest(dataset, hashlib.sha256(b"the same").hexdigest())))[-1] == "  and 5 more"
    assert locate_id(dataset, "b.jsonl-99").n_found == 0
    assert locate_digest(dataset, "0" * 9).n_found == 0


def test_ids_that_are_rows_are_found_in_every_file(dataset: Path, tmp_path: Path) -> None:
    for name in ("tokens", "tables"):
        shutil.copytree(dataset.parent / name, tmp_path / name)
    path = tmp_path / "tables/documents.parquet"
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(table.set_column(0, "id", table["row"].cast(pa.int64())), path)
    found = locate_id(tmp_path / "tokens", "5")
    assert [(one.id, one.row, one.shard) for one in found.documents] == [
        (5, 5, f"data/raw/{name}") for name in DOCUMENTS
    ]
    assert "ids are rows" in locate_id(tmp_path / "tokens", "a.jsonl-5").why_none


def test_what_cannot_be_asked_or_read_is_an_error(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ParamsError, match="--token: found -1"):
        locate_token(dataset, -1, None)
    for digest in ("1234567", "x" * 64, "0" * 65):
        with pytest.raises(ParamsError, match="--digest: found"):
            locate_digest(dataset, digest)
    with pytest.raises(ParamsError, match="--id: found"):
        locate_id(dataset, os.fsdecode(b"caf\xe9"))
    with pytest.raises(ValidationError, match="expected a token dataset"):
        locate_id(tmp_path, "x")
    shutil.copytree(dataset, tmp_path / "tokens")
    with pytest.raises(ValidationError, match="document index"):
        locate_id(tmp_path / "tokens", "x")
    shutil.copytree(dataset.parent / "tables", tmp_path / "tables")
    with pytest.raises(TokenizerError, match="--tokenizer"):
        locate_token(tmp_path / "tokens", 0, None)
    assert locate_token(tmp_path / "tokens", 0, dataset.parent / "tokenizer") == replace(
        locate_token(dataset, 0, None), dataset=tmp_path / "tokens"
    )
    other = train_vocab(Counter(pattern="gpt2"), 256, pattern="gpt2", special_tokens=[])
    other.save(tmp_path / "tokenizer")
    with pytest.raises(TokenizerError, match=r"expected the dataset's tokenizer, .*; found "):
        locate_token(tmp_path / "tokens", 0, None)
    file = tmp_path / "tokens" / next(walk(dataset))[0]
    whole = pq.read_table(file, partitioning=None)
    file.unlink()  # it may be a link
    pq.write_table(pa.concat_tables([whole, whole]), file)
    monkeypatch.setattr("tokenmill_reader.formats.parquet._SURPLUS_MAX", 0)
    with pytest.raises(ValidationError, match="which were not loaded"):
        locate_token(tmp_path / "tokens", 0, dataset.parent / "tokenizer")
    path = tmp_path / "tables/documents.parquet"
    path.unlink()
    path.write_bytes(b"PAR1")
    with pytest.raises(ValidationError, match="cannot be read"):
        locate_id(tmp_path / "tokens", "x")


def test_the_command_answers_in_text_and_json_and_ends_with_1_where_nothing_is_found(built: Project) -> None:
    done = cli(built, "locate", "--token", "0")
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == ["token 0 begins its document", "  document  a.jsonl-0"]
    done = cli(built, "locate", "data/tokens", "--id", "nothing")
    assert (done.returncode, done.stdout) == (1, "no document of data/tokens has the id 'nothing'.\n")
    done = cli(built, "locate", "--digest", hashlib.sha256(b"the same").hexdigest(), "--json")
    found = json.loads(done.stdout)["result"]
    assert (found["n_found"], len(found["documents"]), found["token"]) == (25, 20, None)
    assert cli(built, "locate").returncode == 2
