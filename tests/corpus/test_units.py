"""Units follow from content and parameters alone."""

import hashlib
import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.config.sources import Reading
from tokenmill.corpus import units
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.corpus.shard_ranges import _LineCounter
from tokenmill.corpus.units import Corpus, cut, md5_of_file
from tokenmill.errors import CorpusError
from tokenmill.storage import file_facts
from tokenmill.storage.file_facts import Digests


def corpus_of(root: Path, unit_bytes_max: int, unit_bytes_min: int = 0, threads: int = 1) -> Corpus:
    shards = find_shards(root, "data/raw/**/*")
    return cut(shards, Digests(root, trust=False), unit_bytes_min, unit_bytes_max, threads)


def lines(n: int, seed: int = 0) -> list[bytes]:
    randoms = random.Random(seed)
    return [
        json.dumps({"id": i, "text": "x" * randoms.randrange(40)}).encode() + b"\n" + b" \n" * randoms.randrange(2)
        for i in range(n)
    ]


def records(n: int, seed: int) -> list[bytes]:
    """A header, and records of up to six lines, some with blank lines behind them."""
    randoms = random.Random(seed)
    texts = ["".join(randoms.choices('x",\n', k=randoms.randrange(6))).replace('"', '""') for _ in range(n)]
    rows = [f'{i},"{text}"\n{randoms.choice(["", "", "", chr(10)])}'.encode() for i, text in enumerate(texts)]
    return [b'"id","text"\n', *rows]


def write(root: Path, name: str, content: bytes) -> Path:
    path = root / "data/raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def documents(corpus: Corpus, shard: str) -> list[tuple[int, str, str]]:
    found = []
    for unit in corpus.units:
        for piece in unit.pieces:
            if piece.shard.name == shard:
                for batch in read_batches(piece.shard, Reading("text", "id", None), part=piece.part):
                    rows = range(batch.first_row, batch.first_row + len(batch.texts))
                    assert batch.ids is not None
                    found += list(zip(rows, batch.texts.to_pylist(), batch.ids.to_pylist(), strict=True))
    return found


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 60),
    unit_bytes_max=st.integers(1, 600),
    seed=st.integers(0, 99),
    ends=st.booleans(),
    name=st.sampled_from(["a.jsonl", "a.csv"]),
)
def test_the_parts_of_a_file_of_lines_are_its_documents(
    tmp_path_factory: pytest.TempPathFactory, n: int, unit_bytes_max: int, seed: int, ends: bool, name: str
) -> None:
    root = tmp_path_factory.mktemp("p")
    content = b"".join(lines(n, seed) if name == "a.jsonl" else [b"\xef\xbb\xbf\n", *records(n, seed)])
    write(root, name, content if ends else content.rstrip())
    corpus = corpus_of(root, unit_bytes_max)
    whole = corpus_of(root, 10**9)
    assert documents(corpus, f"data/raw/{name}") == documents(whole, f"data/raw/{name}")
    for piece in (piece for unit in corpus.units for piece in unit.pieces if piece.part):
        assert piece.part.first_line == content[: piece.part.start].count(b"\n") + 1
    assert sum(unit.n_bytes for unit in corpus.units) == sum(unit.n_bytes for unit in whole.units)
    longest = max(map(len, content.splitlines(keepends=True)), default=0) * (1 if name == "a.jsonl" else 6)
    assert all(unit.n_bytes <= max(unit_bytes_max, unit_bytes_max // 2 + longest + 1) for unit in corpus.units)


def test_a_changed_line_changes_the_units_beside_it_and_no_others(tmp_path: Path) -> None:
    before = lines(4000)
    write(tmp_path, "a.jsonl", b"".join(before))
    old = {unit.pieces[0].digest for unit in corpus_of(tmp_path, 4000).units}
    for after in (
        [*before[:2000], b'{"id": 7, "text": "new"}\n', *before[2000:]],
        before[:2000] + before[2003:],
        [*before, b'{"id": 7, "text": "appended"}\n'],
    ):
        write(tmp_path, "a.jsonl", b"".join(after))
        new = {unit.pieces[0].digest for unit in corpus_of(tmp_path, 4000).units}
        assert len(old) > 30
        assert len(new - old) <= 4


def test_another_header_changes_every_unit_of_a_csv_file(tmp_path: Path) -> None:
    before = records(400, 0)
    write(tmp_path, "a.csv", b"".join(before))
    old = {unit.pieces[0].digest for unit in corpus_of(tmp_path, 1000).units}
    write(tmp_path, "a.csv", b"".join([b'"text","id"\n', *before[1:]]))
    new = {unit.pieces[0].digest for unit in corpus_of(tmp_path, 1000).units}
    assert len(old) > 5 and not old & new


def test_the_row_groups_of_a_parquet_file_are_packed_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet", b"")
    randoms = random.Random(0)
    texts = ["".join(randoms.choices("abcdefgh", k=400)) for _ in range(60)]
    table = pa.table({"id": [str(i) for i in range(60)], "text": texts})
    pq.write_table(table, path, row_group_size=4, compression="none", use_dictionary=False, write_statistics=False)
    corpus = corpus_of(tmp_path, path.stat().st_size // 4)
    assert len(corpus.units) == 4
    assert [unit.output for unit in corpus.units] == [f"a.{i:05}.parquet" for i in range(len(corpus.units))]
    assert documents(corpus, "data/raw/a.parquet") == [(i, text, str(i)) for i, text in enumerate(texts)]


def test_a_compressed_file_is_one_unit_however_large(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl.gz", b"\x1f\x8b" + bytes(5000))
    assert [unit.name for unit in corpus_of(tmp_path, 100).units] == ["data/raw/a.jsonl.gz"]


def test_small_shards_share_units_within_a_top_folder_and_large_ones_do_not(tmp_path: Path) -> None:
    for folder in ("en", "fr"):
        for i in range(300):
            write(tmp_path, f"{folder}/deep{i % 7}/{i:03}.txt", b"x" * (i % 50))
    write(tmp_path, "en/large.txt", b"x" * 9000)
    units = corpus_of(tmp_path, 60_000, 9000).units
    sizes = [len(unit.pieces) for unit in units]
    assert sum(sizes) == 601
    assert max(sizes) <= 60
    assert len(units) < 40
    assert any(unit.name == "data/raw/en/large.txt" for unit in units)
    for unit in units:
        assert len({piece.shard.name.split("/")[2] for piece in unit.pieces}) == 1
        assert unit.output.startswith(unit.pieces[0].shard.name.split("/")[2])


def test_a_new_small_shard_changes_the_group_it_comes_into_and_no_others(tmp_path: Path) -> None:
    for i in range(0, 4000, 2):
        write(tmp_path, f"{i:04}.txt", b"x")
    old = {unit.pieces for unit in corpus_of(tmp_path, 60_000, 100).units}
    write(tmp_path, "2001.txt", b"x")
    new = {unit.pieces for unit in corpus_of(tmp_path, 60_000, 100).units}
    assert len(old) > 30
    assert 1 <= len(new - old) <= 4


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    for i in range(20):
        write(tmp_path, f"{i}.jsonl", b"".join(lines(20, i)))
    assert corpus_of(tmp_path, 200, threads=1) == corpus_of(tmp_path, 200, threads=8)


def test_a_file_that_grew_since_it_was_found_is_refused_and_nothing_of_it_is_remembered(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", b"".join(lines(20)))
    shards = find_shards(tmp_path, "data/raw/**/*")
    with path.open("ab") as file:
        file.write(b"".join(lines(20, 1)))
    os.utime(path, (0, 0))
    digests = Digests(tmp_path)
    with pytest.raises(CorpusError, match=r"expected [\d,]+ bytes, as when the build began; found [\d,]+"):
        cut(shards, digests, 0, 100, 2)
    digests.save()
    units = cut(find_shards(tmp_path, "data/raw/**/*"), Digests(tmp_path), 0, 100, 2).units
    assert sum(unit.n_bytes for unit in units) == path.stat().st_size


@given(st.lists(st.binary(min_size=1, max_size=12) | st.text("\n\r \t\f\0a", min_size=1, max_size=12).map(str.encode)))
def test_lines_are_counted_alike_however_their_bytes_come(blocks: list[bytes]) -> None:
    found = _LineCounter()
    for block in blocks:
        found.add(block)
    found.end()
    *ended, last = b"".join(blocks).split(b"\n")
    expected = [*ended, last] if last else ended
    assert (found.n_lines, found.n_rows) == (len(expected), sum(bool(line.strip()) for line in expected))


def test_two_units_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", b"")
    pq.write_table(pa.table({"text": ["x"]}), write(tmp_path, "a.jsonl.parquet", b""))
    with pytest.raises(CorpusError, match=r"would both be encoded into a\.jsonl\.parquet"):
        corpus_of(tmp_path, 1000)


def test_the_reading_for_an_md5_finds_the_facts_of_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_facts, "_RACY_NS", 0)
    made = [write(tmp_path, "large.jsonl", b"".join(lines(200))), write(tmp_path, "small.jsonl", lines(1)[0])]
    made.append(write(tmp_path, "table.parquet", b""))
    pq.write_table(pa.table({"text": ["x"] * 200}), made[2], row_group_size=50)
    other = write(tmp_path.parent, "other", b"no document")
    shards = {str(one.path): one for one in find_shards(tmp_path, "data/raw/**/*")}
    digests = Digests(tmp_path)
    expected = cut(list(shards.values()), Digests(tmp_path, trust=False), 0, 1000, 1)
    for path in [*made, other, *made]:
        assert md5_of_file(str(path), shards, digests, 1000) == hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(units, "open_shard", None)  # no shard is read again
    assert cut(list(shards.values()), digests, 0, 1000, 1) == expected
    assert len(expected.units) > len(made)


def test_a_file_that_is_no_document_has_an_md5(tmp_path: Path) -> None:
    """DVC looks at it before the stage that says what is wrong."""
    content = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    path = write(tmp_path, "a.jsonl", content)
    shards = {str(one.path): one for one in find_shards(tmp_path, "data/raw/**/*")}
    with pytest.raises(CorpusError):
        corpus_of(tmp_path, 1000)
    assert md5_of_file(str(path), shards, Digests(tmp_path), 1000) == hashlib.md5(content).hexdigest()


def test_the_signatures_of_a_corpus_are_those_of_its_digests_though_a_file_changes_later(tmp_path: Path) -> None:
    """A task that reads a file checks that it is the one of its key."""
    path = write(tmp_path, "a.jsonl", b'{"id": "x", "text": "cat"}\n')
    shards, digests = find_shards(tmp_path, "data/raw/**/*"), Digests(tmp_path)
    corpus = cut(shards, digests, 0, 1000, 1)
    before = file_facts.signature_of(shards[0].path)
    path.write_bytes(b'{"id": "x", "text": "dog"}\n')
    os.utime(path, ns=(0, 0))
    md5_of_file(str(path), {str(path): shards[0]}, digests, 1000)
    assert corpus.seen == {shards[0].path: before}
    assert before != file_facts.signature_of(shards[0].path)
