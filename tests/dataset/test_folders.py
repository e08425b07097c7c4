"""A folder of a dataset is enough for programs that read Parquet: each finds every document once, and nothing else."""

import re
from pathlib import Path

import dask.dataframe
import datasets
import pandas as pd
import polars as pl
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import tokenmill
from tests.conftest import Project, make_project
from tokenmill.analysis.info import info
from tokenmill.errors import ValidationError

DOCUMENTS = {
    "a.jsonl": ["the cat", "the dog", ""],
    "de/b.jsonl": ["die Katze"],
    "parquet/c.jsonl": ["a folder that is called like a format"],
    "_hidden/d.jsonl": ["a folder that pyarrow would leave out"],
    "_e.jsonl": ["a file that pyarrow would leave out"],
    "test/f.jsonl": ["a folder that datasets would take for a split", "two"],
}
SPLITS = {"train": 0.5, "validation": 0.3, "test": 0.2}


@pytest.fixture(scope="module", params=[["parquet", "arrow"], ["megatron"]], ids=["with parquet", "without"])
def tokens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with splits and folders of documents."""
    project = make_project(tmp_path_factory.mktemp("folders") / "project", DOCUMENTS)
    project.set(encode__formats=request.param, encode__splits=SPLITS)
    Project(project.root).build()
    return project.root / "data/tokens"


IDS = sorted(f"{name}-{i}" for name, texts in DOCUMENTS.items() for i in range(len(texts)))


def test_the_folder_of_documents_has_every_document_once(tokens: Path, tmp_path: Path) -> None:
    folder = str(tokens / "documents")
    every = f"{folder}/**/*.parquet"
    found = {
        "polars": pl.read_parquet(folder)["id"].to_list(),
        "polars, lazily": pl.scan_parquet(folder).collect()["id"].to_list(),
        "pyarrow": pq.read_table(folder)["id"].to_pylist(),
        "pyarrow.dataset": pyarrow.dataset.dataset(folder).to_table()["id"].to_pylist(),
        "pandas": pd.read_parquet(folder)["id"].tolist(),
        "dask": dask.dataframe.read_parquet(folder)["id"].compute().tolist(),
        "datasets": datasets.load_dataset("parquet", data_files=every, split="train", cache_dir=str(tmp_path))["id"],
    }
    assert {name: sorted(ids) for name, ids in found.items()} == dict.fromkeys(found, IDS)


def test_a_folder_inside_a_dataset_names_the_dataset(tokens: Path) -> None:
    said = re.escape(f"documents: is a folder inside the dataset {tokens}. Name that one.")
    with pytest.raises(ValidationError, match=said):
        tokenmill.open(tokens / "documents")
    with pytest.raises(ValidationError, match=said):
        info(tokens / "documents")


def test_each_file_is_a_shard_of_a_stream(tokens: Path) -> None:
    files = [str(path) for path in sorted((tokens / "documents").rglob("*.parquet"))]
    assert datasets.load_dataset("parquet", data_files=files, split="train", streaming=True).num_shards == len(files)


def test_datasets_finds_the_splits_in_the_folder_of_a_format(tokens: Path, tmp_path: Path) -> None:
    index = pl.read_parquet(tokens.parent / "tables/documents.parquet")
    expected = {key[0]: part["id"].to_list() for key, part in index.group_by("split", maintain_order=True)}
    for format in ("parquet", "arrow"):
        if (tokens / format).exists():
            found = datasets.load_dataset(str(tokens / format), cache_dir=str(tmp_path))
            assert {name: list(split["id"]) for name, split in found.items()} == expected
