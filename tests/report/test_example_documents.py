"""The documents that report.html shows: which they are, and their tokens."""

import pyarrow.parquet as pq

from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.dataset.manifest import read_manifest
from tokenmill.report import example_documents
from tokenmill.report.example_documents import examples_in


def test_the_longest_the_shortest_and_some_drawn_documents_are_those_of_the_dataset(project: Project) -> None:
    for name in "cd":
        project.write(f"{name}.jsonl", [f"{name} " + "the cat " * (i % 7) for i in range(30)])
    project.build()
    root = project.root
    found = examples_in(root, read_manifest(root / "data/tokens"))
    assert found is not None
    index = pq.read_table(root / "data/tables/documents.parquet").to_pylist()
    for k, row in enumerate(index):
        row["number"] = k - next(
            i for i, one in enumerate(index) if one["file"] == row["file"]
        )  # of the row in its file
    by_length = sorted(index, key=lambda row: row["n_tokens"])
    shown = ("shard", "row", "n_tokens")
    assert [[one[key] for key in shown] for one in found.shortest] == [
        [row[key] for key in shown] for row in by_length[:3]
    ]
    by_length.sort(key=lambda row: -row["n_tokens"])
    assert [[one[key] for key in shown] for one in found.longest] == [
        [row[key] for key in shown] for row in by_length[:3]
    ]
    assert len(found.drawn) == example_documents.N_DRAWN
    tokenizer = Tokenizer.load(root / "data/tokenizer")
    for one in found.drawn:
        [row] = [row for row in index if (row["shard"], row["row"]) == (one["shard"], one["row"])]
        ids = pq.read_table(root / "data/tokens" / row["file"])["input_ids"][row["number"]].as_py()
        assert one["beginning"] == [tokenizer.token_bytes(id).decode() for id in ids]
