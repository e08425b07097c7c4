"""Datasets that earlier versions made are still read: one of tokenmill 0.1.0, and one of manifest format 7, in which the documents'
own files were not yet in a folder of their own."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

import tokenmill
from tests.builders.document_sets import MADE_BY_0_1
from tests.builders.teams import cli
from tests.conftest import Project, make_project
from tokenmill import Tokenizer
from tokenmill.dataset.manifest import read_manifest, read_manifest_file
from tokenmill.dataset.tokens_digest import TokensDigest
from tokenmill.features.share.upload import upload
from tokenmill.features.view.locate import locate_id, locate_token
from tokenmill.formats.parquet import read_tokens
from tokenmill_reader.copy_check import files_below
from tokenmill_reader.regular_files import sha256_file

OF_FORMAT_7 = Path(__file__).parent / "made_by_format_7"
TEXTS = {
    "a-0": "the cat sat on the mat",
    "a-1": "ein Satz mit ß und ü",
    "a-2": "the dog and the cat",
    "b-0": "one document of the folder above",
    "b-1": "a last line with the end",
}


def test_a_dataset_of_0_1_decodes_to_its_documents() -> None:
    manifest = read_manifest_file(MADE_BY_0_1 / "tokens/manifest.json")
    assert manifest.engine.startswith("tokenmill 0.1.0")
    tokenizer = Tokenizer.load(MADE_BY_0_1 / "tokenizer")
    assert tokenizer.digest == manifest.tokenizer_digest
    opened = [document.tolist() for document in tokenmill.open(MADE_BY_0_1 / "tokens")]
    for shard in manifest.shards:
        path = MADE_BY_0_1 / "tokens" / shard.name
        assert sha256_file(path) == shard.sha256
        rows = [row for batch in read_tokens(path) for row in batch.to_pylist()]
        assert [row["input_ids"] for row in rows] == [opened.pop(0) for _ in rows]
        lines = (MADE_BY_0_1 / "raw" / shard.name.removesuffix(".parquet")).read_text(encoding="utf-8").splitlines()
        documents = [json.loads(line) for line in lines]
        assert [row["id"] for row in rows] == [document["id"] for document in documents]
        assert [row["input_ids"].pop() for row in rows] == [manifest.end_of_document_id] * len(rows)
        assert [tokenizer.decode(row["input_ids"]) for row in rows] == [document["text"] for document in documents]
        assert [row["input_ids"] for row in rows] == [tokenizer.encode(document["text"]) for document in documents]


def test_the_digest_of_a_manifest_of_format_4_leaves_out_what_later_formats_added() -> None:
    manifest = read_manifest_file(MADE_BY_0_1 / "tokens/manifest.json").model_copy(update={"format_version": 4})
    found = json.loads(manifest.as_json())
    added = {"files", "sets", "packed", "blends", "sources", "mixture"}
    assert added & found.keys() == set()
    fields = {key: value for key, value in found.items() if key != "digest"}
    expected = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert manifest.own_digest() == hashlib.sha256(expected.encode()).hexdigest()


@pytest.fixture
def earlier(tmp_path: Path) -> Project:
    """A folder with the dataset of format 7, which is shuffled and has two splits, and what lies beside it."""
    shutil.copytree(OF_FORMAT_7, tmp_path, dirs_exist_ok=True)
    return Project(tmp_path)


def test_a_dataset_of_format_7_is_verified_opened_and_located(earlier: Project) -> None:
    tokens = earlier.root / "data/tokens"
    manifest = read_manifest(tokens)
    assert [shard.name for shard in manifest.shards] == ["b.jsonl.parquet", "documents/a.jsonl.parquet"]
    done = cli(earlier, "verify", "data/tokens", "--source", ".")
    assert done.returncode == 0, done.stdout
    assert json.loads(cli(earlier, "info", "data/tokens", "--json").stdout)["result"]["format_version"] == 7
    decode = Tokenizer.load(earlier.root / "data/tokenizer").decode
    for format in ("megatron", "parquet"):
        splits = [tokenmill.open(tokens, split, format=format) for split in ("train", "validation")]
        texts = [decode(document[:-1].tolist()) for split in splits for document in split]
        assert sorted(texts) == sorted(TEXTS.values())
    (found,) = locate_id(tokens, "a-1").documents
    assert (found.file, found.row_in_file) == ("documents/a.jsonl.parquet", 1)
    assert locate_token(tokens, found.first_token, None).documents == [found]


def test_a_dataset_of_format_7_is_uploaded_and_downloaded(earlier: Project, tmp_path: Path) -> None:
    lock = "stages:\n  encode:\n    outs:\n    - path: data/tokens\n      md5: 0123456789abcdef0123456789abcdef.dir\n"
    (earlier.root / "dvc.lock").write_text(lock, encoding="utf-8")
    earlier.run("git", "init", "-q")
    earlier.run(
        "git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "a"
    )
    url = upload(earlier.root, str(tmp_path / "place")).url
    assert cli(earlier, "download", url, "copy").returncode == 0
    assert files_below(earlier.root / "copy/tokens") == files_below(earlier.root / "data/tokens")
    assert cli(earlier, "verify", url, "--no-source").returncode == 0


@pytest.mark.slow
def test_the_next_build_leaves_nothing_of_format_7_and_the_order_comes_from_the_tokens(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    shutil.rmtree(project.root / "data/raw")
    shutil.copytree(OF_FORMAT_7 / "data", project.root / "data", dirs_exist_ok=True)
    project.set(train_vocab__vocab_size=262, encode__splits={"train": 0.6, "validation": 0.4})
    project.set(encode__formats=["parquet", "megatron"], encode__shuffle={"seed": 5})
    project.build()
    tokens, before = project.root / "data/tokens", OF_FORMAT_7 / "data/tokens"
    sets = {name for name in files_below(before) if name.startswith(("megatron/", "parquet/"))}
    own = {"documents/b.jsonl.parquet", "documents/documents/a.jsonl.parquet"}
    assert set(files_below(tokens)) == {"manifest.json", "README.md", *own, *sets}
    shards = dict(read_manifest(tokens).outputs())
    for name, shard in read_manifest(before).outputs():
        digest = TokensDigest()
        for rows in read_tokens(before / name):
            digest.add(rows)
        assert shards[name].tokens_sha256 == digest.hex() and shard.tokens_sha256 is None
    assert read_manifest(tokens).tokens_digest() != read_manifest(before).tokens_digest()
    assert cli(project, "verify").returncode == 0
