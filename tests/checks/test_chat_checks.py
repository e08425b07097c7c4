"""Rows of conversations are checked against their messages, and without these as far as the rows tell."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.builders.conversation_sets import StandIn, canonical
from tests.builders.trained import TOKENIZER
from tokenmill.checks.file_checks import DocumentRules, FileCheck, check_file
from tokenmill.checks.row_checks import Judge, check_sample, check_span
from tokenmill.checks.spans import Span
from tokenmill.config.source_params import Source
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.reader import Batch
from tokenmill.dataset.document_index import read_unit_index, unit_index
from tokenmill.dataset.entries import InputRows, OutputShard
from tokenmill.dataset.tables import UNIT_INDEX_FILE
from tokenmill.errors import ValidationError
from tokenmill.formats.parquet import read_tokens, write_tokens
from tokenmill.formats.tokens import id_type, rows, schema

CONVERSATIONS = [
    canonical("what is it?", "the cat"),
    canonical("naïve <|pad|> 東京", "a dog", "and?", "no"),
    canonical("only a question"),
]
JUDGE = Judge(TOKENIZER, None, None, False, True, {"another": lambda text: []}, StandIn())
SHAPE = schema(id_type(TOKENIZER.id_max), has_names=True, has_mask=True)

Row = dict[str, Any]


def batch_of(conversations: list[str]) -> Batch:
    texts = ["\n".join(message["content"] for message in json.loads(one)["messages"]) for one in conversations]
    names = [f"c-{i}" for i in range(len(conversations))]
    return Batch(
        0,
        pa.array(texts, pa.large_string()),
        pa.array(names, pa.large_string()),
        messages=pa.array(conversations, pa.large_string()),
    )


def rows_of(batch: Batch) -> pa.RecordBatch:
    """As the stage makes them."""
    assert batch.messages is not None
    encoded = StandIn().encode_batch(batch.messages)
    return rows(replace(batch, texts=encoded.texts), encoded.input_ids, SHAPE, encoded.loss_mask)


def span(change: Callable[[list[Row]], None] = lambda rows: None, batch: Batch | None = None) -> Span:
    batch = batch or batch_of(CONVERSATIONS)
    found = rows_of(batch_of(CONVERSATIONS)).to_pylist()
    change(found)
    return Span(["c.jsonl"], 0, batch, pa.RecordBatch.from_pylist(found, schema=SHAPE))


def test_rows_of_conversations_are_right_as_they_were_made() -> None:
    counts = check_span(span(), JUDGE).counts
    assert counts.sum() == len(span().tokens["input_ids"].flatten())
    assert check_sample(span(), JUDGE, {0, 1}) == 0


def test_a_row_has_the_digest_of_its_messages_and_the_bytes_of_the_templates_text() -> None:
    first, *_ = rows_of(batch_of(CONVERSATIONS)).to_pylist()
    assert first["n_bytes"] == len(b"user: what is it?<|pad|>assistant: the cat<|pad|>")
    assert len(first["input_ids"]) == len(first["loss_mask"])
    assert TOKENIZER.decode([id for id, bit in zip(first["input_ids"], first["loss_mask"], strict=True) if bit]) == (
        "the cat<|pad|>"
    )
    hashed = rows_of(batch_of([CONVERSATIONS[0].replace("cat", "cot")])).to_pylist()[0]["sha256"]
    assert len(first["sha256"]) == 32 and first["sha256"] != hashed


def mask(i: int, at: int, bit: int) -> Callable[[list[Row]], None]:
    def change(rows: list[Row]) -> None:
        rows[i]["loss_mask"][at] = bit

    return change


def shorter(rows: list[Row]) -> None:
    rows[1]["loss_mask"].pop()


def other_id(rows: list[Row]) -> None:
    rows[1]["input_ids"][2] ^= 1


def other_digest(rows: list[Row]) -> None:
    rows[2]["sha256"] = bytes(32)


def other_bytes(rows: list[Row]) -> None:
    rows[1]["n_bytes"] += 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (mask(1, 0, 1), "row 1: loss_mask from token 0 on: found [1, "),
        (mask(0, -1, 0), "row 0: loss_mask from token "),
        (mask(2, 1, 2), "row 2: loss_mask: expected 0 or 1; found 2"),
        (mask(2, 1, -1), "row 2: loss_mask: expected 0 or 1; found -1"),
        (shorter, "row 1: length of loss_mask: found "),
        (other_id, "row 1: ids differ from those of encoding the conversation again from token 2 on"),
        (other_digest, "row 2: sha256 from 0 on: found "),
        (other_bytes, "row 1: n_bytes: found "),
    ],
)
def test_a_changed_row_is_named_with_what_is_wrong(change: Callable[[list[Row]], None], words: str) -> None:
    with pytest.raises(ValidationError) as found:
        check_span(span(change), JUDGE)
    assert words in str(found.value)


def test_other_messages_than_those_that_were_encoded_are_found() -> None:
    batch = batch_of([CONVERSATIONS[0], CONVERSATIONS[1].replace("no", "yes"), CONVERSATIONS[2]])
    with pytest.raises(ValidationError, match=r"c\.jsonl: row 1: ids differ from those of encoding"):
        check_span(span(batch=batch), JUDGE)
    spaced = [one.replace('"role"', '"name":"x","role"') for one in CONVERSATIONS]  # the template does not show it
    with pytest.raises(ValidationError, match=r"c\.jsonl: row 0: sha256"):
        check_span(span(batch=batch_of(spaced)), JUDGE)


def test_a_conversation_that_the_template_refuses_is_named() -> None:
    refused = [CONVERSATIONS[0], canonical("refused"), CONVERSATIONS[2]]
    with pytest.raises(ValidationError, match=r"c\.jsonl: row 1: the conversation cannot be encoded: this template"):
        check_span(span(batch=batch_of(refused)), JUDGE)


def test_texts_beside_rows_of_conversations_are_told() -> None:
    with pytest.raises(ValidationError, match="the dataset holds conversations; the input file was read as texts"):
        check_span(span(batch=replace(batch_of(CONVERSATIONS), messages=None)), JUDGE)


def write_file(folder: Path, change: Callable[[list[Row]], None] = lambda rows: None) -> OutputShard:
    made = span(change).tokens
    with write_tokens(folder / "c.parquet", SHAPE) as write:
        write(made)
    return OutputShard(
        name="c.parquet",
        unit="u",
        n_bytes=1,
        sha256="0" * 64,
        n_documents=3,
        n_tokens=len(made["input_ids"].flatten()),
        text_bytes=sum(made["n_bytes"].to_pylist()),
        rows=[InputRows(name="c.jsonl", first_row=0, first_line=1, n_documents=3, n_bad=0)],
        n_trained=sum(made["loss_mask"].flatten().to_pylist()),
    )


def check_alone(folder: Path, entry: OutputShard) -> Any:
    """Without the documents."""
    judge = replace(JUDGE, has_source=False, chat=None)
    made = folder / "made"
    made.mkdir(exist_ok=True)
    rules = DocumentRules(Source.model_construct(), UNBOUNDED, {})
    file = FileCheck(entry, folder / "c.parquet", None, rules, judge, {0}, None, None)
    return check_file(file, lambda _bytes, _tokens: None, made)


def test_without_documents_the_index_is_made_anew_but_for_the_numbers_of_messages(tmp_path: Path) -> None:
    entry = write_file(tmp_path)
    facts = check_alone(tmp_path, entry)
    assert (facts.n_trained, facts.n_tokens, facts.n_sampled) == (entry.n_trained, entry.n_tokens, 0)
    batch = batch_of(CONVERSATIONS)
    with unit_index(tmp_path / "index.arrow", [0], True, has_mask=True) as add:
        add(batch, rows_of(batch))
    expected, found = read_unit_index(tmp_path / "index.arrow"), read_unit_index(tmp_path / "made" / UNIT_INDEX_FILE)
    assert expected["n_messages"].to_pylist() == [2, 4, 1]
    assert found["n_messages"].to_pylist() == [0, 0, 0]
    assert found.drop_columns(["n_messages"]).equals(expected.drop_columns(["n_messages"]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (mask(2, 1, 2), "row 2: loss_mask: expected 0 or 1; found 2"),
        (shorter, "row 1: length of loss_mask"),
        (other_bytes, "row 1: n_bytes"),
    ],
)
def test_without_documents_what_a_row_contradicts_is_found(
    change: Callable[[list[Row]], None], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError) as found:
        check_alone(tmp_path, write_file(tmp_path, change))
    assert words in str(found.value)


def test_another_number_of_trained_tokens_than_the_manifest_says_is_found(tmp_path: Path) -> None:
    entry = write_file(tmp_path, mask(1, 0, 1)).model_copy(update={"n_trained": 8})
    with pytest.raises(ValidationError, match=r"c\.parquet: n_trained: it says 8; found \d+"):
        check_alone(tmp_path, entry)


def test_a_file_with_a_mask_is_none_of_a_dataset_of_texts(tmp_path: Path) -> None:
    entry = write_file(tmp_path).model_copy(update={"n_trained": None})
    with pytest.raises(ValidationError, match=r"expected the columns id, input_ids \(list of uint16\) and n_bytes"):
        check_alone(tmp_path, entry)
    (batch,) = read_tokens(tmp_path / "c.parquet")
    plain = schema(id_type(TOKENIZER.id_max), True)
    (tmp_path / "c.parquet").unlink()
    with write_tokens(tmp_path / "c.parquet", plain) as write:
        write(batch.select(plain.names))
    with pytest.raises(ValidationError, match="n_bytes, loss_mask and sha256"):
        check_alone(tmp_path, entry.model_copy(update={"n_trained": 1}))
