"""Loss masks follow their tokens through splits, mixtures, packing, padding and shuffle, and are checked with them."""

import tempfile
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.conversation_sets import (
    Conversation,
    arranged,
    files_of,
    items_of,
    manifest_of,
    shape_of_conversations,
    write_sets,
    write_unit,
)
from tests.builders.rounds import driven
from tokenmill.checks.findings import Finding
from tokenmill.checks.set_checks import wrong_sets
from tokenmill.checks.subject import RightFile, Subject
from tokenmill.config.encode_params import Pack, Shuffle
from tokenmill.dataset.document_index import read_unit_index, trained, unit_of_index
from tokenmill.dataset.tables import UNIT_INDEX_FILE
from tokenmill.file_sets.packing import Long, Mode, Packing
from tokenmill.format_facts import FORMATS
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.parquet import read_tokens
from tokenmill_reader.formats.columns import schema_of

ID_MAX = 60_000
PAD = 1
HOLD_MASKS = ["parquet", "arrow", "mds", "datatrove", "megatron_sft", "megatron_sft_parquet"]


def conversations(masks: list[list[list[int]]]) -> list[list[Conversation]]:
    """Units of conversations with these masks, in which no id is there twice."""
    id = PAD
    units = []
    for unit in masks:
        made = []
        for mask in unit:
            made.append(Conversation(list(range(id + 1, id + 1 + len(mask))), mask, n_messages=1 + len(mask) % 3))
            id += len(mask)
        units.append(made)
    return units


masks_of_units = st.lists(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=7), min_size=1, max_size=3
)


@st.composite
def arrangements(draw: st.DrawFn) -> dict[str, Any]:
    mode: Mode = draw(st.sampled_from(["none", "concat", "best_fit"]))
    long: Long = "split" if mode == "concat" else draw(st.sampled_from(["split", "cut", "drop"]))
    pad = draw(st.booleans())
    return {
        "pack": Pack(length=draw(st.integers(2, 9)), mode=mode, long=long, labels=draw(st.booleans())),
        "splits": draw(st.sampled_from([{}, {"train": 0.6, "test": 0.4}])),
        "shuffle": draw(st.sampled_from([None, Shuffle(seed=3)])),
        "pad_id": PAD if pad else None,
    }


def expected_columns(row: dict[str, Any], mask_of: dict[int, int], has_labels: bool) -> dict[str, Any]:
    """A sequence with these ids and starts, token by token."""
    begin = 0
    columns: dict[str, Any] = {"loss_mask": [], "labels": [], "position_ids": []}
    for i, id in enumerate(row["input_ids"]):
        begin = i if i in row["starts"] else begin
        learned = id != PAD and i != begin and mask_of[id] == 1
        columns["loss_mask"].append(int(learned))
        columns["labels"].append(id if learned else -100)
        columns["position_ids"].append(i - begin)
    columns["seq_lengths"] = [b - a for a, b in pairwise([*row["starts"], len(row["input_ids"])])]
    return columns if has_labels else {"loss_mask": columns["loss_mask"]}


@pytest.mark.slow
@given(masks=masks_of_units, how=arrangements())
def test_masks_follow_their_tokens_through_every_arrangement(
    masks: list[list[list[int]]], how: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("masked")
    units_of = conversations(masks)
    units = [write_unit(folder, f"u{i}", some, ID_MAX) for i, some in enumerate(units_of)]
    arrangement, sets = arranged(folder / "work", units, files_of(**how), ["arrow"], ID_MAX)
    mask_of = {id: bit for some in units_of for one in some for id, bit in zip(one.ids, one.mask, strict=True)}
    n_trained = 0
    of_all: list[int] = []
    for one in sets:
        found = items_of(one)
        for row in found:
            given_columns = {name: values for name, values in row.items() if name not in ("input_ids", "starts")}
            assert given_columns == expected_columns(row, mask_of, how["pack"].labels)
        n_trained += arrangement.packed.get(one.split or "", {}).get("n_trained", 0)
        of_all += [id for row in found for id in row["input_ids"] if id != PAD]
    assert n_trained == sum(mask_of.values())
    n_cut = sum(
        any(bit and id not in set(of_all) for id, bit in zip(one.ids, one.mask, strict=True))
        for some in units_of
        for one in some
    )
    assert sum(numbers["n_cut_answers"] for numbers in arrangement.packed.values()) == n_cut
    assert len(of_all) == len(set(of_all))
    if how["pack"].long == "split":
        assert sorted(of_all) == sorted(mask_of)


@pytest.mark.slow
@given(masks=masks_of_units, how=arrangements())
def test_masks_follow_their_documents_through_splits_and_shuffle(
    masks: list[list[list[int]]], how: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("documents")
    units_of = conversations(masks)
    units = [write_unit(folder, f"u{i}", some, ID_MAX) for i, some in enumerate(units_of)]
    _, sets = arranged(
        folder / "work", units, files_of(splits=how["splits"], shuffle=how["shuffle"]), ["arrow"], ID_MAX
    )
    found = [(row["input_ids"], row["loss_mask"]) for one in sets for row in items_of(one)]
    assert sorted(found) == sorted((one.ids, one.mask) for some in units_of for one in some)


def test_masks_follow_the_documents_that_a_mixture_repeats(tmp_path: Path) -> None:
    units_of = conversations([[[0, 1, 1], [1, 0]], [[0, 0, 1, 1]] * 8])
    names = ["chat", "tools"]
    units = [write_unit(tmp_path, f"u{i}", some, ID_MAX, names[i]) for i, some in enumerate(units_of)]
    mask_of = {id: bit for some in units_of for one in some for id, bit in zip(one.ids, one.mask, strict=True)}
    files = files_of(Pack(length=5, mode="best_fit"), epochs={"chat": "2", "tools": "1/2"})
    arrangement, sets = arranged(tmp_path / "work", units, files, ["arrow"], ID_MAX)
    found = [row for one in sets for row in items_of(one)]
    for row in found:
        assert row["loss_mask"] == expected_columns(row, mask_of, False)["loss_mask"]
    ids = [id for row in found for id in row["input_ids"]]
    assert all(ids.count(id) == 2 for one in units_of[0] for id in one.ids)
    assert 0 < sum(id in mask_of for id in set(ids)) < len(mask_of)
    assert arrangement.packed[""]["n_trained"] == sum(mask_of[id] for id in ids)


def test_an_index_of_sequences_leaves_masks_with_their_documents_and_counts_cut_answers(tmp_path: Path) -> None:
    units_of = conversations([[[0, 1, 1, 1, 0], [0, 1, 0, 0, 0], [0, 1]]])
    units = [write_unit(tmp_path, "u", units_of[0], ID_MAX)]
    files = files_of(Pack(length=3, mode="best_fit", long="cut", output="index"))
    arrangement, sets = arranged(tmp_path / "work", units, files, ["arrow"], ID_MAX)
    (documents,) = [one for one in sets if one.format.name == "arrow"]
    assert [row["loss_mask"] for row in items_of(documents)] == [one.mask for one in units_of[0]]
    assert (arrangement.packed[""]["n_trained"], arrangement.packed[""]["n_cut_answers"]) == (5, 1)


def test_documents_without_masks_have_no_numbers_of_answers() -> None:
    assert not {"n_trained", "n_cut_answers"} & set(Packing._fields)


def test_the_document_index_says_what_is_trained_and_how_many_messages_there_are(tmp_path: Path) -> None:
    some = conversations([[[0, 1, 1, 0], [0, 0], [1], [1, 0, 1]]])[0]
    unit = write_unit(tmp_path, "u", some, ID_MAX)
    index = read_unit_index(unit.index)
    assert index["n_trained"].to_pylist() == [2, 0, 1, 2]
    assert index["trained_end"].to_pylist() == [3, 0, 1, 3]
    assert index["n_messages"].to_pylist() == [one.n_messages for one in some]
    (rows,) = [pa.Table.from_batches(read_tokens(unit.tokens))]
    assert index["sha256"].equals(rows["sha256"])
    assert len(set(index["sha256"].to_pylist())) == 4  # of the messages, though the texts are equal
    again = index.append_column("shard", pa.array(["s"] * 4)).drop_columns(["piece"])
    again = again.set_column(again.schema.get_field_index("row"), "row", pc.add(again["row"], 70))
    unit_of_index(again, tmp_path / "again.arrow", [("s", 70)])
    assert read_unit_index(tmp_path / "again.arrow").equals(index)


@given(st.lists(st.lists(st.integers(0, 1), max_size=5)), st.integers(0, 3))
def test_trained_tokens_are_counted_in_slices_too(masks: list[list[int]], start: int) -> None:
    found = trained(pa.array(masks, pa.list_(pa.int8()))[start:])
    assert found[0].to_pylist() == [sum(mask) for mask in masks[start:]]
    assert found[1].to_pylist() == [
        max((i + 1 for i, bit in enumerate(mask) if bit), default=0) for mask in masks[start:]
    ]


def flip(row: dict[str, Any], name: str) -> None:
    """Another value in one of the columns of a sequence, at a token that is not a start."""
    at = next(i for i in range(len(row["input_ids"])) if i not in row["starts"])
    if name == "seq_lengths":
        row[name][0] += 1
    else:
        row[name][at] = {"loss_mask": 1 - row[name][at], "labels": -100 if row[name][at] >= 0 else 7}.get(
            name, row[name][at] + 1
        )


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("format", HOLD_MASKS)
def test_changed_masks_labels_and_positions_are_found_and_named(format: str, shuffled: bool, tmp_path: Path) -> None:
    units_of = conversations([[[0, 1, 1, 1, 0, 1], [0, 1], [0, 0, 1]], [[0, 1, 0]] * 4])
    tokens = tmp_path / "tokens"
    units = [write_unit(tokens, f"u{i}", some, ID_MAX) for i, some in enumerate(units_of)]
    has_labels = FORMATS[format].holds_labels  # other formats hold ids, starts and the mask alone
    pack = Pack(length=5, mode="best_fit", labels=has_labels)
    files = files_of(pack, shuffle=Shuffle(seed=1) if shuffled else None, pad_id=PAD)
    manifest = manifest_of(units, units_of, ID_MAX, files)
    tokenizer: Any = SimpleNamespace(id_max=ID_MAX, digest=shape_of_conversations(ID_MAX).tokenizer_digest)
    arrangement, sets = arranged(tmp_path / "work", units, files, [format], ID_MAX, manifest.tokens_digest())
    entries = write_sets(tokens, arrangement, sets)
    manifest = manifest_of(units, units_of, ID_MAX, files, entries, arrangement.packed)

    right = []
    for unit, entry in zip(units, manifest.shards, strict=True):
        (folder := tmp_path / unit.file).mkdir()
        (folder / UNIT_INDEX_FILE).symlink_to(unit.index)
        right.append(RightFile(entry, folder))

    def check(some: Any = manifest) -> list[tuple[str, str]]:
        subject = Subject(tokens, [], None, tokens, some, tokenizer, tokens, None, None)
        checks = wrong_sets(subject, right, threads=1, code="")
        found = driven(checks, Path(tempfile.mkdtemp(dir=tmp_path)))
        return [(one.file, one.what) for one in found if isinstance(one, Finding)]

    assert check() == []
    kind, rows = SET_FORMATS[format], items_of(sets[0])
    for name in ["loss_mask", *["labels", "position_ids", "seq_lengths"] * has_labels]:
        changed = [{key: list(values) for key, values in row.items()} for row in rows]
        row = next(row for row in changed if len(row["starts"]) < len(row["input_ids"]))
        flip(row, name)
        path = tokens / kind.name
        for file in kind.files("part-00000", arrangement.shape):
            (path / file).unlink()
        with kind.write(path, "part-00000", arrangement.shape) as add:
            add(pa.RecordBatch.from_pylist(changed, schema=schema_of(arrangement.shape)))
        ((file, what),) = [one for one in check() if "index.json" not in one[0]]
        assert file == f"{format}/part-00000{kind.suffixes[0]}"
        assert f"item {changed.index(row)}: {name} from " in what
    numbers = {"": arrangement.packed[""] | {"n_cut_answers": 1}}
    assert any("packed" in what for _, what in check(manifest.model_copy(update={"packed": numbers})))
