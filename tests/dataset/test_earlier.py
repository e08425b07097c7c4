"""A dataset and a tokenizer that tokenmill 0.1.0 made are still read."""

import hashlib
import json
from pathlib import Path

from tokenmill import Tokenizer
from tokenmill.dataset.formats.parquet import read_tokens
from tokenmill.dataset.manifest import read_manifest_file
from tokenmill.storage.atomic import sha256_file

MADE = Path(__file__).parent / "made_by_0_1"


def test_a_dataset_of_0_1_decodes_to_its_documents() -> None:
    manifest = read_manifest_file(MADE / "tokens/manifest.json")
    assert manifest.engine.startswith("tokenmill 0.1.0")
    tokenizer = Tokenizer.load(MADE / "tokenizer")
    assert tokenizer.digest == manifest.tokenizer_digest
    for shard in manifest.shards:
        path = MADE / "tokens" / shard.name
        assert sha256_file(path) == shard.sha256
        rows = [row for batch in read_tokens(path) for row in batch.to_pylist()]
        lines = (MADE / "raw" / shard.name.removesuffix(".parquet")).read_text(encoding="utf-8").splitlines()
        documents = [json.loads(line) for line in lines]
        assert [row["id"] for row in rows] == [document["id"] for document in documents]
        assert [row["input_ids"].pop() for row in rows] == [manifest.end_of_document_id] * len(rows)
        assert [tokenizer.decode(row["input_ids"]) for row in rows] == [document["text"] for document in documents]
        assert [row["input_ids"] for row in rows] == [tokenizer.encode(document["text"]) for document in documents]


def test_the_digest_of_a_manifest_of_format_4_leaves_out_what_later_formats_added() -> None:
    manifest = read_manifest_file(MADE / "tokens/manifest.json").model_copy(update={"format_version": 4})
    found = json.loads(manifest.as_json())
    added = {"files", "sets", "packed", "blends", "sources", "mixture"}
    assert added & found.keys() == set()
    fields = {key: value for key, value in found.items() if key != "digest"}
    expected = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert manifest.own_digest() == hashlib.sha256(expected.encode()).hexdigest()
