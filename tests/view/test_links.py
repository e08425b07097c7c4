"""Documents lead to the items of file sets that hold them, and back; lists are sorted by length."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import make_project
from tests.view.conftest import DOCUMENTS, ask, documents_of
from tokenmill.errors import ParamsError, ValidationError
from tokenmill.features.view import dataset_view
from tokenmill.features.view.dataset_view import DatasetView


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed, padded and shuffled sequences of two splits and two epochs, which repeat a source one and a half times."""
    project = make_project(tmp_path_factory.mktemp("view") / "mixture", DOCUMENTS)
    sources: dict[str, dict[str, Any]] = {
        name: {"glob": f"data/raw/{name}.jsonl", "id_column": "id"} for name in ("a", "b")
    }
    project.set(
        sources={**sources, "a": {**sources["a"], "epochs": 1.5}},
        encode__formats=["arrow"],
        encode__splits={"train": 0.7, "validation": 0.3},
        encode__shuffle={"seed": 1, "epochs": 2},
        encode__pack={"length": 64, "mode": "best_fit", "pad": "<|endoftext|>"},
    )
    project.build()
    return project.root / "data/tokens"


@pytest.mark.parametrize("dataset", ["texts", "sequences", "mixture"])
def test_documents_and_items_lead_to_each_other(dataset: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(dataset)
    view, documents = DatasetView(path), [np.array(row["input_ids"]) for row in documents_of(path)]
    sets = ask(view, "info")["sets"]
    there, back = set(), set()
    for number in range(1, len(sets)):
        items = view._sets[number].open()
        for i in range(sets[number]["n_items"]):
            rows = ask(view, "links", set=number, i=i)["rows"]
            assert [row["position"] for row in rows] == items.starts(i).tolist()
            for row in rows:
                part, place = slice(row["position"], row["position"] + row["n_tokens"]), row["start"]
                assert items[i][part].tolist() == documents[row["i"]][place : place + row["n_tokens"]].tolist()
                assert row["id"] == ask(view, "item", i=row["i"])["facts"]["id"]
                there.add((row["i"], number, i, row["number"], row["position"], place))
            behind = ask(view, "links", set=number, i=i, at=rows[-1]["position"])["rows"]
            assert behind == rows[-1:]
    for document in range(len(documents)):
        for row in ask(view, "links", i=document)["rows"]:
            back.add((document, row["set"], row["i"], row["number"], row["position"], row["start"]))
    assert there == back and {document for document, *_ in there} == {i for i, ids in enumerate(documents) if len(ids)}


@pytest.mark.parametrize("dataset", ["texts", "mixture"])
@pytest.mark.parametrize("order", ["shortest", "longest"])
def test_lists_are_sorted_by_length(
    order: str, dataset: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path: Path = request.getfixturevalue(dataset)
    monkeypatch.setattr(dataset_view, "_ROWS_MAX", 10)
    view = DatasetView(path)
    for number, one in enumerate(view._sets):
        lengths = [len(ids) for ids in one.open().take(np.arange(one.n_items))]
        page = ask(view, "items", set=number, order=order)
        found = [row["i"] for row in page["rows"]]
        while page["next"] is not None:
            page = ask(view, "items", set=number, order=order, start=page["next"])
            found += [row["i"] for row in page["rows"]]
        sign = -1 if order == "longest" else 1
        assert found == sorted(range(one.n_items), key=lambda i: (sign * lengths[i], i))


def test_an_item_of_other_documents_is_an_error(mixture: Path, tmp_path: Path) -> None:
    tokens = shutil.copytree(mixture, tmp_path / "tokens")
    shutil.copytree(mixture.parent / "tables", tmp_path / "tables")
    index = tmp_path / "tables/documents.parquet"
    table = pq.read_table(index)
    reverse = table["n_tokens"].take(list(range(len(table)))[::-1])
    pq.write_table(table.set_column(table.schema.names.index("n_tokens"), "n_tokens", reverse), index)
    view = DatasetView(tokens)
    with pytest.raises(ValidationError, match=r"train · epoch 0 · sequences of the file sets: (expected|item)"):
        ask(view, "links", set=1, i=0)
    index.unlink()
    view = DatasetView(tokens)
    info = ask(view, "info")
    assert not info["has_links"] and not any(one["has_lengths"] for one in info["sets"])
    for name, values in (("links", {"set": 1}), ("items", {"order": "longest"})):
        with pytest.raises(ParamsError, match="its document index"):
            ask(view, name, **values)


def test_a_whole_sequence_is_shown_at_once(texts: Path) -> None:
    view, whole = DatasetView(texts), documents_of(texts)[-1]["input_ids"]
    assert len(ask(view, "item", i=68)["ids"]) == 2000 < len(whole)
    assert ask(view, "item", i=68, n=1 << 16)["ids"] == whole
    with pytest.raises(ParamsError, match="less than 65,537"):
        ask(view, "item", i=68, n=(1 << 16) + 1)
