"""A dataset of conversations in its manifest, its tables, and the units that a build takes over from it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.conversation_sets import Conversation, manifest_of, write_unit
from tests.builders.document_sets import MADE_BY_0_1
from tests.builders.trained import TOKENIZER
from tokenmill.checks.findings import in_manifest
from tokenmill.checks.manifest_checks import wrong_digest, wrong_in_itself
from tokenmill.checks.table_checks import differing_tables
from tokenmill.dataset.document_index import read_unit_index
from tokenmill.dataset.entries import TableFile
from tokenmill.dataset.manifest import Manifest, parse_manifest, read_manifest, read_manifest_file, write_manifest
from tokenmill.dataset.tables import (
    DOCUMENTS_FILE,
    UNIT_COUNTS_FILE,
    UNIT_INDEX_FILE,
    TableInput,
    has_column,
    write_tables,
)
from tokenmill.dataset.token_counts import TokenCounts
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts, take_over
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.storage.unit_store import UnitStore

UNITS = [
    [Conversation([10, 11, 12], [0, 1, 1], 2), Conversation([13, 14], [0, 1], 4)],
    [Conversation([15, 16, 17, 18], [0, 0, 1, 0], 3)],
]


@pytest.fixture
def units(tmp_path: Path) -> list[EncodedUnit]:
    return [write_unit(tmp_path / "units", f"u{i}", some, TOKENIZER.id_max) for i, some in enumerate(UNITS)]


@pytest.fixture
def manifest(units: list[EncodedUnit]) -> Manifest:
    return manifest_of(units, UNITS, TOKENIZER.id_max)


def test_the_manifest_says_how_conversations_became_tokens(manifest: Manifest, tmp_path: Path) -> None:
    write_manifest(manifest, tmp_path)
    found = read_manifest(tmp_path)
    assert found.chat == manifest.chat and found.has_mask
    text = json.loads((tmp_path / "manifest.json").read_text())
    assert text["format_version"] == 10
    assert text["chat"]["variables"] == {"enable_thinking": False} and text["chat"]["n_trained"] == 4
    assert [shard["n_trained"] for shard in text["shards"]] == [3, 1]
    assert list(wrong_in_itself(found)) == []
    assert list(wrong_digest(found, (tmp_path / "manifest.json").read_bytes())) == []


def changed(manifest: Manifest, **chat: Any) -> Manifest:
    assert manifest.chat is not None
    return manifest.model_copy(update={"chat": manifest.chat.model_copy(update=chat)})


def test_numbers_of_trained_tokens_that_contradict_each_other_are_found(manifest: Manifest) -> None:
    assert list(map(str, wrong_in_itself(changed(manifest, n_trained=5)))) == [
        "chat: n_trained is 5, but its files have 4 together. Run `tokenmill build --force`."
    ]
    without = [shard.model_copy(update={"n_trained": None}) for shard in manifest.shards]
    assert any(
        "u0.parquet: n_trained is None" in one.what
        for one in wrong_in_itself(manifest.model_copy(update={"shards": without}))
    )
    assert any(
        "there are no conversations" in one.what for one in wrong_in_itself(manifest.model_copy(update={"chat": None}))
    )
    many = [shard.model_copy(update={"n_trained": 9}) for shard in manifest.shards]
    found = list(wrong_in_itself(changed(manifest, n_trained=18).model_copy(update={"shards": many})))
    assert found == [in_manifest("u0.parquet: expected at most as many trained tokens as tokens; found more.")]


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 8])
def test_manifests_of_texts_are_read_and_written_as_before_conversations(version: int) -> None:
    whole = read_manifest_file(MADE_BY_0_1 / "tokens/manifest.json").model_copy(update={"format_version": version})
    whole = whole.model_copy(update={"digest": whole.own_digest()})
    text = whole.as_json()
    found = json.loads(text)
    assert "chat" not in found and all({"n_trained", "tokens_sha256"}.isdisjoint(one) for one in found["shards"])
    again = parse_manifest(text.encode(), "manifest.json")
    assert again == whole and again.as_json() == text and not again.has_mask
    assert list(wrong_digest(again, text.encode())) == []


def folders_of(units: list[EncodedUnit], folder: Path) -> list[TableInput]:
    """The units' folders as a stage leaves them."""
    parts = []
    for i, unit in enumerate(units):
        own = folder / str(i)
        own.mkdir(parents=True)
        (own / UNIT_INDEX_FILE).write_bytes(unit.index.read_bytes())
        counts = TokenCounts(TOKENIZER.id_max)
        for one in UNITS[i]:
            for id in one.ids:
                counts.counts[id] += 1
        counts.write(own / UNIT_COUNTS_FILE)
        parts.append(TableInput(unit.file, unit.pieces, own, "chat"))
    return parts


def tables_of(units: list[EncodedUnit], folder: Path) -> list[TableFile]:
    parts = folders_of(units, folder / "parts")
    assert has_column(parts, "n_trained") and not has_column(parts, "group")
    tables = folder / "tables"
    tables.mkdir()
    return write_tables(parts, True, TOKENIZER, tables, {"train": 0.5, "test": 0.5})


def test_the_document_index_has_the_numbers_of_conversations(units: list[EncodedUnit], tmp_path: Path) -> None:
    tables_of(units, tmp_path)
    found = pq.read_table(tmp_path / "tables" / DOCUMENTS_FILE)
    assert found.schema.names == [
        *("id", "shard", "row", "file", "first_token", "n_tokens", "n_bytes", "sha256"),
        *("n_trained", "trained_end", "n_messages", "split"),
    ]
    assert found["n_trained"].to_pylist() == [2, 1, 1]
    assert found["trained_end"].to_pylist() == [3, 2, 3]
    assert found["n_messages"].to_pylist() == [2, 4, 3]
    assert found["first_token"].to_pylist() == [0, 3, 5]


def test_changed_numbers_of_conversations_in_the_document_index_are_found(
    units: list[EncodedUnit], tmp_path: Path
) -> None:
    tables_of(units, tmp_path)
    tables_of(units, tmp_path / "other")
    path = tmp_path / "other/tables" / DOCUMENTS_FILE
    whole = pq.read_table(path)
    for name in ("n_trained", "trained_end", "n_messages"):
        at, field = whole.schema.get_field_index(name), whole.schema.field(name)
        first, *others = whole[name].to_pylist()
        pq.write_table(whole.set_column(at, field, pa.array([7, *others], field.type)), path)
        assert list(differing_tables(tmp_path / "tables", tmp_path / "other/tables")) == [
            (DOCUMENTS_FILE, f"row 0: {name}: found 7, expected {first}")
        ]


def test_units_of_conversations_are_taken_over_from_a_dataset(
    units: list[EncodedUnit], manifest: Manifest, tmp_path: Path
) -> None:
    tables = tables_of(units, tmp_path)
    shards = [shard.model_copy(update={"unit": f"{i:064x}"}) for i, shard in enumerate(manifest.shards)]
    write_manifest(manifest.model_copy(update={"shards": shards, "tables": tables}), tmp_path)
    files = {
        "data/tokens/manifest.json": tmp_path / "manifest.json",
        f"data/tables/{DOCUMENTS_FILE}": tmp_path / "tables" / DOCUMENTS_FILE,
    } | {f"data/tokens/{unit.file}": unit.tokens for unit in units}
    store = UnitStore(tmp_path)
    assert take_over(store, {shard.unit: () for shard in shards}, files, 1) == 2
    for unit, shard in zip(units, shards, strict=True):
        done = store.find(shard.unit, EncodeFacts)
        assert done is not None
        assert (done.facts.n_trained, done.facts.n_tokens) == (shard.n_trained, shard.n_tokens)
        assert read_unit_index(done.folder / UNIT_INDEX_FILE).equals(read_unit_index(unit.index))
        assert (done.folder / TOKENS_FILE).read_bytes() == unit.tokens.read_bytes()
