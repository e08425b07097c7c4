"""A task of encode: the tokens of one unit, under all encoders that lack them, in one reading."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.builders.trained import END, trained
from tests.conftest import Project
from tokenmill.config.load_params import load_params
from tokenmill.corpus.good_documents import GoodDocuments
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.source_shards import find_documents
from tokenmill.corpus.units import cut
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts
from tokenmill.errors import CorpusError
from tokenmill.stages.encode_units import EncodeTask
from tokenmill.stages.encoder import Encoder
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.unit_store import UnitStore

DOCUMENTS = ["ab", "ba", "", "ab ab"]
# The special token has id 0. Bytes follow in the order of GPT-2: a is 65, b is 66, a space is 221. 257 is the first merge.
BY_BYTES = [[65, 66, 0], [66, 65, 0], [0], [65, 66, 221, 65, 66, 0]]
BY_ONE_MERGE = [[257, 0], [66, 65, 0], [0], [257, 221, 257, 0]]
BY_TWO_MERGES = [[257, 0], [66, 65, 0], [0], [257, 258, 0]]


def encoder(vocab_size: int) -> Encoder:
    """A tokenizer of the 256 bytes, of "ab" and " ab" if `vocab_size` allows them, and of a token that ends each document."""
    tokenizer = trained(["ab ab ab"], vocab_size=vocab_size, special_tokens=[END])
    assert tokenizer.vocab_size == vocab_size
    return Encoder(tokenizer, None, tokenizer.special_tokens[END])


def task(project: Project, size: int, others: Sequence[tuple[str, Encoder]] = (), force: bool = False) -> EncodeTask:
    """The task for the one unit of a project that has the documents."""
    (project.root / "data/raw/b.jsonl").unlink(missing_ok=True)
    project.write("a.jsonl", DOCUMENTS)
    params = load_params(project.root / "params.yaml")
    digests = Digests(project.root)
    [unit] = cut(find_documents(project.root, params), digests, 0, 1 << 20, threads=1).units
    return EncodeTask(
        name=unit.name,
        key="key",
        unit=unit,
        seen=digests.seen,
        encoder=encoder(size),
        others=others,
        source=params.source,
        filters={},
        group_column=None,
        stop_token=None,
        limits=UNBOUNDED,
        store=UnitStore(project.root),
        force=force,
    )


def run(task: EncodeTask, folder: Path) -> EncodeFacts:
    """The facts of the task, whose files are in a new folder."""
    folder.mkdir()
    return task.run(folder, lambda n_bytes, n_tokens=0: None)


def ids(folder: Path) -> list[list[int]]:
    found: list[list[int]] = pq.read_table(folder / TOKENS_FILE)["input_ids"].to_pylist()
    return found


def stored(task: EncodeTask, key: str) -> list[list[int]]:
    done = task.store.find(key, EncodeFacts)
    assert done is not None
    return ids(done.folder)


@pytest.mark.parametrize(("size", "expected"), [(257, BY_BYTES), (258, BY_ONE_MERGE), (259, BY_TWO_MERGES)])
def test_a_unit_has_the_ids_of_its_tokenizer(
    project: Project, tmp_path: Path, size: int, expected: list[list[int]]
) -> None:
    facts = run(task(project, size), tmp_path / "made")
    assert ids(tmp_path / "made") == expected
    assert facts.n_tokens == sum(map(len, expected))
    assert (facts.piece_documents, facts.text_bytes) == ([4], 9)
    assert (facts.piece_bad, facts.piece_dropped, facts.n_trained) == ([0], [0], None)


def test_further_vocabulary_sizes_come_from_the_same_reading(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reads(monkeypatch)
    made = task(project, 259, [("one merge", encoder(258)), ("bytes", encoder(257))])
    run(made, tmp_path / "made")
    assert read == ["data/raw/a.jsonl"]
    assert ids(tmp_path / "made") == BY_TWO_MERGES
    assert (stored(made, "one merge"), stored(made, "bytes")) == (BY_ONE_MERGE, BY_BYTES)
    assert made.store.find("key", EncodeFacts) is None  # the pool that runs a task keeps its folder


def test_a_size_that_is_stored_is_encoded_again_only_by_force(project: Project, tmp_path: Path) -> None:
    run(task(project, 259, [("other", encoder(257))]), tmp_path / "first")
    again = task(project, 259, [("other", encoder(258))])  # another encoder under the same key, to see which one wrote
    run(again, tmp_path / "again")
    assert stored(again, "other") == BY_BYTES
    forced = task(project, 259, [("other", encoder(258))], force=True)
    run(forced, tmp_path / "forced")
    assert stored(forced, "other") == BY_ONE_MERGE


def test_nothing_is_stored_of_a_file_that_changed_since_the_build_began(project: Project, tmp_path: Path) -> None:
    late = task(project, 259, [("other", encoder(257))])
    project.write("a.jsonl", [*DOCUMENTS, "late"])
    with pytest.raises(CorpusError, match=r"a\.jsonl") as raised:
        run(late, tmp_path / "made")
    assert raised.value.code == "TM207"
    assert late.store.find("other", EncodeFacts) is None


@pytest.mark.slow
def test_a_forced_build_of_several_sizes_reads_the_documents_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.set(train_vocab__vocab_sizes=[260, 266], encode__vocab_sizes=[260, 266])
    with project.edited("dvc.yaml") as pipeline:
        pipeline["stages"]["encode"]["outs"].append("data/vocab_sizes")
    project.build()
    read = reads(monkeypatch)
    project.build("--force")
    assert sorted(read) == ["data/raw/a.jsonl", "data/raw/b.jsonl"]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that gets the name of each unit whose documents encode reads from now on."""
    names: list[str] = []

    class Noted(GoodDocuments):
        def __init__(self, unit: Any, *others: Any) -> None:
            names.append(unit.name)
            super().__init__(unit, *others)

    monkeypatch.setattr("tokenmill.stages.encode_units.GoodDocuments", Noted)
    return names
