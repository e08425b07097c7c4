"""A task of encode: the tokens of one unit."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.builders.trained import END, trained
from tests.conftest import Project
from tokenmill.config.load_params import load_params
from tokenmill.corpus.limits import UNBOUNDED
from tokenmill.corpus.source_shards import find_documents
from tokenmill.corpus.units import cut
from tokenmill.dataset.unit_output import TOKENS_FILE, EncodeFacts
from tokenmill.stages.encode_units import EncodeTask
from tokenmill.stages.encoder import Encoder
from tokenmill.storage.file_facts import Digests

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


def task(project: Project, size: int) -> EncodeTask:
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
        source=params.source,
        filters={},
        group_column=None,
        stop_token=None,
        limits=UNBOUNDED,
    )


def run(task: EncodeTask, folder: Path) -> EncodeFacts:
    """The facts of the task, whose files are in a new folder."""
    folder.mkdir()
    return task.run(folder, lambda n_bytes, n_tokens=0: None)


def ids(folder: Path) -> list[list[int]]:
    found: list[list[int]] = pq.read_table(folder / TOKENS_FILE)["input_ids"].to_pylist()
    return found


@pytest.mark.parametrize(("size", "expected"), [(257, BY_BYTES), (258, BY_ONE_MERGE), (259, BY_TWO_MERGES)])
def test_a_unit_has_the_ids_of_its_tokenizer(
    project: Project, tmp_path: Path, size: int, expected: list[list[int]]
) -> None:
    facts = run(task(project, size), tmp_path / "made")
    assert ids(tmp_path / "made") == expected
    assert facts.n_tokens == sum(map(len, expected))
    assert (facts.piece_documents, facts.text_bytes) == ([4], 9)
    assert (facts.piece_bad, facts.piece_dropped, facts.n_trained) == ([0], [0], None)
