"""Datasets with hostile texts, and pages of them."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.builders import in_process
from tests.conftest import Project, make_project
from tokenmill.features.view.answering import Answering
from tokenmill.features.view.dataset_view import Asked, DatasetView
from tokenmill.features.view.server import ViewServer

HOSTILE = "</script><img src=x onerror=document.title='bad'>\u202egnp.exe\u0000\x1b[31m&lt;b&gt; 東京"
DOCUMENTS = {
    "a.jsonl": [f"the {n} cat sat on mat {n * n}" for n in range(40)],
    "b.jsonl": [HOSTILE, "", "dogs \r\n é <|endoftext|> end", *["the same"] * 25, " long words" * 1500],
}

Serve = Callable[[Answering], ViewServer]


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of texts from two sources in two splits, whose document index has many row groups."""
    project = make_project(tmp_path_factory.mktemp("view") / "project", DOCUMENTS)
    project.set(
        sources={name: {"glob": f"data/raw/{name}.jsonl", "id_column": "id"} for name in ("a", "b")},
        encode__splits={"train": 0.7, "validation": 0.3},
    )
    project.build()
    path = project.root / "data/tables/documents.parquet"
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(table, path, row_group_size=7)
    return project.root / "data/tokens"


@pytest.fixture(scope="session")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of conversations in packed sequences."""
    root = tmp_path_factory.mktemp("view") / "chat"
    project = Project(root)
    done = in_process.tokenmill(root.parent, "init", str(root), "--example", "chat")
    assert done.returncode == 0, done.stderr
    project.set(run__engine="inline", run__report_page=False)
    project.build()
    return root / "data/tokens"


@pytest.fixture
def copy(texts: Path, tmp_path: Path) -> Path:
    """A copy of the texts' dataset alone, without what lies beside it."""
    return shutil.copytree(texts, tmp_path / "copy/tokens")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a page until the test ends."""
    with ExitStack() as stack:

        def started(view: Answering) -> ViewServer:
            server = stack.enter_context(ViewServer(view, 0))
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server

        yield started


def ask(view: DatasetView, name: str, **values: Any) -> dict[str, Any]:
    """The answer to a question."""
    found: dict[str, Any] = getattr(view, name)(Asked({key: str(value) for key, value in values.items()}))
    return found


def documents_of(dataset: Path) -> list[dict[str, Any]]:
    """The rows of the documents' own files in order."""
    manifest = json.loads((dataset / "manifest.json").read_text())
    return [
        row for one in manifest["shards"] for row in pq.read_table(dataset / one["name"], partitioning=None).to_pylist()
    ]
