"""The answers to the page's questions are those that the dataset's files give."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tokenmill
from tests.builders.character_tokenizers import like_gemma
from tests.view.conftest import DOCUMENTS, HOSTILE, ask, documents_of
from tokenmill.error_pages import error_pages
from tokenmill.errors import ParamsError, TokenizerError, ValidationError
from tokenmill.features.view import dataset_view
from tokenmill.features.view.dataset_view import DatasetView
from tokenmill.features.view.vocabulary import Vocabulary
from tokenmill.tokenizer.tokenizer import Tokenizer

TEXTS = [text for texts in DOCUMENTS.values() for text in texts]


def all_rows(view: DatasetView, name: str, **values: Any) -> list[dict[str, Any]]:
    """The rows of all pages."""
    rows, start = [], 0
    while start is not None:
        found = ask(view, name, start=start, **values)
        rows += found["rows"]
        assert found["next"] is None or found["next"] > start
        start = found["next"]
    return rows


def test_every_document_has_its_tokens_and_its_row_of_the_index(texts: Path) -> None:
    view, index = DatasetView(texts), pq.read_table(texts.parent / "tables/documents.parquet").to_pylist()
    rows = all_rows(view, "items")
    assert [row["i"] for row in rows] == list(range(len(TEXTS)))
    for i, document in enumerate(documents_of(texts)):
        found = ask(view, "item", i=i)
        part = document["input_ids"][:2000]
        assert (found["ids"], found["n_tokens"], found["learned"]) == (part, len(document["input_ids"]), None)
        assert (found["first_token"], found["starts"]) == (index[i]["first_token"], [0])
        assert found["facts"]["id"] == document["id"] and found["facts"]["split"] == index[i]["split"]
        assert found["facts"]["source"] == document["id"][0]
        assert rows[i]["head"].split(" · ")[2:] == [document["id"], index[i]["split"], document["id"][0]]


def test_the_first_page_reads_no_other_file_of_documents(copy: Path) -> None:
    (copy / "documents/b.jsonl.parquet").unlink()
    view = DatasetView(copy)
    view._sets[0] = view._sets[0]._replace(n_items=len(DOCUMENTS["a.jsonl"]))  # one page would show them all
    assert len(ask(view, "items")["rows"]) == len(DOCUMENTS["a.jsonl"])


def test_a_long_document_is_shown_in_parts(texts: Path) -> None:
    view, long = DatasetView(texts), len(TEXTS) - 1
    whole = documents_of(texts)[long]["input_ids"]
    assert len(whole) > 2000
    first, second = ask(view, "item", i=long), ask(view, "item", i=long, at=2000)
    assert first["ids"] + second["ids"] == whole[:4000]
    assert (first["starts"], second["starts"]) == ([0], [])


def test_file_sets_are_listed_by_split_and_source(texts: Path) -> None:
    view = DatasetView(texts)
    info = ask(view, "info")
    assert [one["name"] for one in info["sources"]] == ["a", "b"]
    assert [one["first"] for one in info["sources"]] == [0, 40]
    sets = info["sets"][1:]
    assert {one["name"] for one in sets} == {
        f"{split} · {source} · documents of the file sets" for split in ("train", "validation") for source in "ab"
    }
    for number, one in enumerate(sets, 1):
        split, source, _ = one["name"].split(" · ")
        expected = [ids.tolist()[:2000] for ids in tokenmill.open(texts, split, source=source)]
        assert [ask(view, "item", set=number, i=i)["ids"] for i in range(one["n_items"])] == expected


def test_sequences_have_boundaries_and_masks(sequences: Path) -> None:
    view, dataset = DatasetView(sequences), tokenmill.open(sequences)
    assert [(one["kind"], one["n_items"]) for one in ask(view, "info")["sets"]] == [
        ("documents", len(error_pages())),  # the example has a conversation about each
        ("sequences", len(dataset)),
    ]
    for i in range(len(dataset)):
        found = ask(view, "item", set=1, i=i)
        assert found["ids"] == dataset[i].tolist()
        assert (found["starts"], found["n_before"]) == (dataset.starts(i).tolist(), 0)
        second = ask(view, "item", set=1, i=i, at=found["starts"][-1])
        assert (second["starts"], second["n_before"]) == ([0], len(found["starts"]) - 1)
        assert found["learned"] == (dataset.labels(i) != -100).tolist()
    conversation = ask(view, "item", i=3)
    assert conversation["learned"] == documents_of(sequences)[3]["loss_mask"]


def test_hostile_text_is_shown_with_escapes(texts: Path) -> None:
    found = ask(DatasetView(texts), "item", i=40)
    assert found["text"].startswith(
        r"</script><img src=x onerror=document.title='bad'>\u202egnp.exe\x00\x1b[31m&lt;b&gt; 東京"
    )
    shown = "".join(found["tokens"][id][0] for id in found["ids"])
    assert r"\u202e" in shown or r"\xe2" in shown
    assert all(character.isprintable() for character in shown)
    raw = b"".join(bytes.fromhex(found["tokens"][id][1]) for id in found["ids"])
    assert raw.startswith(HOSTILE.encode())


@pytest.mark.parametrize("wanted", ["cat sat on mat 1", "é", "the same", "</script>", "not there", "東"])
def test_a_text_is_found_where_it_is(wanted: str, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_view, "_SCAN_TOKENS_MAX", 100)
    monkeypatch.setattr(dataset_view, "_BATCH", 3)
    view = DatasetView(texts)
    rows = all_rows(view, "search", by="text", q=wanted)
    assert [row["i"] for row in rows] == [i for i, text in enumerate(TEXTS) if wanted in text]
    for row in rows:
        ids = documents_of(texts)[row["i"]]["input_ids"]
        before = Tokenizer.load(texts.parent / "tokenizer").decode_bytes(ids[: row["position"]])
        place = TEXTS[row["i"]].encode().index(wanted.encode())
        assert len(before) <= place and row["around"][1] == wanted


def test_a_token_is_found_by_its_text_and_by_its_id(texts: Path) -> None:
    view, tokenizer = DatasetView(texts), Tokenizer.load(texts.parent / "tokenizer")
    id = max(range(1, tokenizer.vocab_size), key=lambda id: len(tokenizer.token_bytes(id)))  # 0 is special
    text = tokenizer.token_bytes(id).decode()
    with_it = [(i, row["input_ids"].index(id)) for i, row in enumerate(documents_of(texts)) if id in row["input_ids"]]
    assert with_it
    for rows in (all_rows(view, "search", by="token", q=text), all_rows(view, "search", by="token id", q=id)):
        assert [(row["i"], row["position"]) for row in rows] == with_it
    with pytest.raises(ParamsError, match="no token has exactly the text 'no such token'"):
        ask(view, "search", by="token", q="no such token")
    with pytest.raises(ParamsError, match="expected the id of a token"):
        ask(view, "search", by="token id", q="-1")
    with pytest.raises(ParamsError, match="found nothing"):
        ask(view, "search", by="text", q="")


def test_a_document_is_found_by_its_id(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenmill.features.view.document_index._SCAN_ROWS_MAX", 5)
    view = DatasetView(texts)
    for i, row in enumerate(documents_of(texts)):
        assert [found["i"] for found in all_rows(view, "search", by="id", q=row["id"])] == [i]
    assert all_rows(view, "search", by="id", q="none") == []
    with pytest.raises(ParamsError, match="among all documents"):
        ask(view, "search", set=1, by="id", q="a.jsonl-1")


def test_the_vocabulary_has_all_tokens_with_their_counts(texts: Path) -> None:
    view = DatasetView(texts)
    ids = np.concatenate([row["input_ids"] for row in documents_of(texts)])
    counts: list[int] = []
    start = 0
    while start is not None:
        found = ask(view, "vocabulary", start=start)
        assert found["ids"] == list(range(start, start + len(found["ids"])))
        counts += found["counts"]
        start = found["next"]
    assert counts == np.bincount(ids, minlength=272).tolist()
    most = ask(view, "vocabulary", order="count")["counts"]
    assert most == sorted(counts, reverse=True)[:100]
    only = ask(view, "vocabulary", q="cat")
    assert all("cat" in only["tokens"][id][0] for id in only["ids"]) and only["n"] == len(only["ids"]) > 0
    assert ask(view, "vocabulary", q="271")["ids"] == [271]


def test_two_tokenizers_encode_a_text_beside_each_other(texts: Path, sequences: Path) -> None:
    other = sequences.parent / "tokenizer"
    view = DatasetView(texts, other=other)
    own, another = ask(view, "encode", text="the cat <|endoftext|> é")["by"]
    assert own["ids"] == Tokenizer.load(texts.parent / "tokenizer").encode("the cat <|endoftext|> é")
    assert another["ids"] == Tokenizer.load(other).encode("the cat <|endoftext|> é")
    allowed = ask(view, "encode", text="<|endoftext|>", special="allow")["by"][0]
    assert allowed["tokens"][allowed["ids"][0]][2] and len(allowed["ids"]) == 1
    with pytest.raises(ParamsError, match="up to 5,000 characters"):
        ask(view, "encode", text="a" * 5001)


def test_a_tokenizer_that_is_not_byte_level_is_compared_too(texts: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(like_gemma()), encoding="utf-8")
    own, other = ask(DatasetView(texts, other=path), "encode", text="the cat")["by"]
    assert other["ids"] == Tokenizer.load(path).encode("the cat") != own["ids"]


def test_a_copy_without_tables_and_tokenizer_shows_ids(copy: Path, texts: Path) -> None:
    view = DatasetView(copy)
    info = ask(view, "info")
    assert [re.sub(r" \S+/", " ", note) for note in info["notes"]] == [
        "There is no tokens_per_id.parquet: tokens have no counts.",
        "There is no documents.parquet: documents have no ids here.",
        "There is no tokenizer: texts are not decoded. Name it with --tokenizer.",
    ]
    found = ask(view, "item", i=2)
    assert found["text"] is None and found["ids"] == documents_of(texts)[2]["input_ids"]
    assert found["tokens"][found["ids"][0]] == [str(found["ids"][0]), None, False]
    id = found["ids"][1]
    assert [row["i"] for row in all_rows(view, "search", by="token id", q=id)]
    for by, message in (("text", "needs the dataset's tokenizer"), ("id", "has its document index")):
        with pytest.raises(ParamsError, match=message):
            ask(view, "search", by=by, q="a")
    with pytest.raises(ParamsError, match="expected the dataset's tokenizer or its tables"):
        ask(view, "vocabulary")
    named = DatasetView(copy, texts.parent / "tokenizer")
    assert [row["i"] for row in all_rows(named, "search", by="text", q="dogs")] == [42]
    shutil.copytree(texts.parent / "tables", copy.parent / "tables")
    tables = DatasetView(copy)
    assert ask(tables, "item", i=2)["tokens"][id][0] != str(id)  # the table has the bytes of the tokens


def test_another_tokenizer_and_another_index_are_refused(copy: Path, texts: Path, sequences: Path) -> None:
    with pytest.raises(TokenizerError, match="expected the dataset's tokenizer"):
        DatasetView(copy, sequences.parent / "tokenizer")
    shutil.copytree(sequences.parent / "tables", copy.parent / "tables")
    with pytest.raises(
        ValidationError,
        match=rf"documents\.parquet: expected 69 documents, as the manifest says; found {len(error_pages())}",
    ):
        DatasetView(copy, texts.parent / "tokenizer")


def test_numbers_outside_are_refused(texts: Path) -> None:
    view = DatasetView(texts)
    for name, values in (
        ("item", {"i": len(TEXTS)}),
        ("item", {"i": -1}),
        ("item", {"i": "1" * 30}),
        ("item", {"at": 10**6}),
        ("items", {"start": len(TEXTS) + 1}),
        ("items", {"set": 99}),
    ):
        with pytest.raises(ParamsError, match="expected a number from 0 on"):
            ask(view, name, **values)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\n    ", "\\n\n    "),
        (b":\n\n\t", ":\\n\n\\n\n\\t"),
        (b"\r\n", "\\r\\n\n"),
        (b"\\n", "\\n"),  # a backslash and an n
        (b"\xe6\n\xb1", "\\xe6\\n\n\\xb1"),
        (b"", ""),
    ],
)
def test_a_token_breaks_behind_its_newlines(raw: bytes, shown: str) -> None:
    vocabulary = Vocabulary(None)
    vocabulary.bytes = {5: raw}
    assert vocabulary.tokens([5])["tokens"] == {5: [shown, raw.hex(), False]}
    assert vocabulary.shown(5) == shown.replace("\n", "")


def test_a_preview_that_is_cut_says_so(texts: Path) -> None:
    view, documents = DatasetView(texts), documents_of(texts)
    for row, document in zip(all_rows(view, "items"), documents, strict=True):
        assert row["around"][0].endswith("…") == (len(document["input_ids"]) > 24)
    end_id = documents[0]["input_ids"][-1]
    for row in all_rows(view, "search", by="token id", q=end_id):
        before, _, behind = row["around"]
        at, n = row["position"], len(documents[row["i"]]["input_ids"])
        assert (before.startswith("…"), behind.endswith("…")) == (at > 12, n > at + 13)
    for row in all_rows(view, "search", by="text", q="long"):
        assert (row["around"][0], row["around"][2][-1]) == (" ", "…")
    assert all("…" not in "".join(row["around"]) for row in all_rows(view, "search", by="text", q="cat sat"))
