"""What a unit holds beside the text of its documents is bounded: ids, what is left out, renderings, and what libraries take."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from tests.builders import character_tokenizers
from tests.builders.talks import SPECIAL, TALKS, hold_talks, write_talks
from tests.builders.units import SOURCE, documents_of, unit_of
from tests.conftest import Project
from tokenmill.chat import isolated
from tokenmill.corpus.dropped import unit_dropped
from tokenmill.corpus.limits import BATCH_BYTES, VALUE_BYTES_MAX, Limits
from tokenmill.corpus.reader import BESIDE_BYTES_MAX, read_batches
from tokenmill.corpus.shards import Shard
from tokenmill.dataset.group_keys import group_column
from tokenmill.errors import CorpusError, TokenizerError
from tokenmill.features.drop.filter.drop_list import DropLine, DropList
from tokenmill.process_memory import resident_bytes
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill.tokenizer.tokenizers_engine import TokenizersEngine

LIMITS = Limits(BATCH_BYTES, BATCH_BYTES)
LONG = "a" * (VALUE_BYTES_MAX + 1)

Rows = list[dict[str, Any]]


def lines(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def of_table(write: Callable[[pa.Table, Any], None]) -> Callable[[Rows], bytes]:
    def made(rows: Rows) -> bytes:
        sink = pa.BufferOutputStream()
        write(pa.Table.from_pylist(rows), sink)
        return bytes(sink.getvalue())

    return made


def write_arrow(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


FILES: dict[str, Callable[[Rows], bytes]] = {
    "a.jsonl": lines,
    "a.jsonl.gz": lambda rows: gzip.compress(lines(rows)),
    "a.json": lambda rows: json.dumps(rows).encode(),
    "a.parquet": of_table(pq.write_table),
    "a.arrow": of_table(write_arrow),
}


@pytest.mark.parametrize("name", FILES)
def test_an_id_that_is_too_long_makes_a_bad_document(tmp_path: Path, name: str) -> None:
    longest = LONG[1:]
    rows = [{"id": "x", "text": "one"}, {"id": LONG, "text": "two"}, {"id": longest, "text": "three"}]
    unit = unit_of(tmp_path, {name: FILES[name](rows)})
    documents = documents_of(unit, {}, LIMITS)
    [batch] = documents
    assert (batch.texts.to_pylist(), batch.ids.to_pylist()) == (["one", "three"], ["x", longest])
    [left] = documents.left
    assert (left.row, left.raw) == (1, b"two")
    assert left.reason == "column 'id': expected at most 65,536 bytes; found 65,537"
    with pytest.raises(CorpusError, match=f"{name}, row 1: column 'id': expected at most 65,536 bytes; found 65,537"):
        list(read_batches(unit.pieces[0].shard, SOURCE.reading))


@pytest.mark.parametrize("name", FILES)
def test_a_group_that_is_too_long_is_named(tmp_path: Path, name: str) -> None:
    unit = unit_of(tmp_path, {name: FILES[name]([{"id": "x", "text": "one", "lang": LONG}])})
    reading = SOURCE.reading_for_index(group_column("lang"))
    with pytest.raises(CorpusError, match=r"row 0: column 'lang': expected at most 65,536 bytes; found 65,537"):
        list(read_batches(unit.pieces[0].shard, reading))


def test_batches_of_short_texts_end_at_the_bytes_of_their_ids(tmp_path: Path) -> None:
    rows = [{"id": f"{i:060}" * 1000, "text": "a"} for i in range(300)]
    unit = unit_of(tmp_path, {"a.jsonl": lines(rows)})
    batches = list(read_batches(unit.pieces[0].shard, SOURCE.reading))
    assert [id for batch in batches for id in batch.ids.to_pylist()] == [row["id"] for row in rows]
    assert [batch.ids.nbytes <= BESIDE_BYTES_MAX + 8 * 300 for batch in batches] == [True, True]


def test_the_bytes_of_bad_documents_are_bounded(tmp_path: Path) -> None:
    unit = unit_of(tmp_path, {"a.jsonl": b"no JSON at all\n" * 1000})
    with pytest.raises(CorpusError, match=r"a\.jsonl, line \d+: the documents that were left out up to here take more"):
        list(documents_of(unit, {}, replace(LIMITS, held_bytes_max=20_000)))


def test_documents_that_filters_leave_out_are_not_held(tmp_path: Path) -> None:
    """They are written into the unit's folder as they are found."""
    rows = [{"id": f"{i:01000}", "text": "a"} for i in range(100)]
    drops = DropList([DropLine(f"line {i}", row["id"], None, "why") for i, row in enumerate(rows)])
    unit = unit_of(tmp_path, {"a.jsonl": lines(rows)})
    documents = documents_of(unit, {"drop": drops}, replace(LIMITS, held_bytes_max=1000), folder=tmp_path)
    assert not any(len(batch.texts) for batch in documents) and documents.dropped.n_by_piece == [100]
    assert [id for batch in unit_dropped(tmp_path) for id in batch["id"].to_pylist()] == [row["id"] for row in rows]


@pytest.mark.parametrize("name", [*FILES, "a.txt"])
def test_a_process_that_is_too_large_stops_at_the_document(tmp_path: Path, name: str) -> None:
    content = FILES.get(name, lambda rows: b"one")([{"id": "x", "text": "one"}])
    (tmp_path / name).write_bytes(content)
    shard = Shard(tmp_path / name, name, len(content), SOURCE)
    limits = replace(LIMITS, process_bytes_max=resident_bytes() + 1_000_000_000)
    assert [batch.texts.to_pylist() for batch in read_batches(shard, SOURCE.reading, limits=limits)] == [["one"]]
    with pytest.raises(
        CorpusError, match=rf"{name}, row 0: the build takes \d+ MB here; run.memory_mb_max leaves 1 MB"
    ):
        list(read_batches(shard, SOURCE.reading, limits=replace(limits, process_bytes_max=1_000_000)))


def ids_of(project: Project) -> list[Any]:
    paths = sorted((project.root / "data/tokens/documents").glob("*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize("turns", ["together", "each"])
def test_renderings_that_are_taken_in_parts_make_the_same_rows(
    project: Project, monkeypatch: pytest.MonkeyPatch, turns: str
) -> None:
    hold_talks(project)
    write_talks(project, "a.jsonl", TALKS["a.jsonl"] * 20)
    project.set(encode__chat={"template": "chatml", "turns": turns})
    project.build()
    whole = ids_of(project)
    monkeypatch.setattr(isolated, "PART_BYTES", 300)
    project.build("--only", "encode", "--force")
    assert ids_of(project) == whole and len(whole) > 40


def test_a_conversation_of_which_a_template_makes_too_much_is_named(project: Project) -> None:
    hold_talks(project)
    write_talks(project, "a.jsonl", [])
    write_talks(project, "b.jsonl", [[("user", "abc " * 250_000), ("assistant", "yes")]])
    template = "{{ messages[0].content * 10 }}<|im_start|>{% generation %}{{ messages[1].content }}{% endgeneration %}"
    (project.root / "much.jinja").write_text(template, encoding="utf-8")
    project.depend("much.jinja", "train-vocab", "encode")
    chat = {"template": "much.jinja", "stop_token": "unchecked"}
    project.set(encode__chat=chat, run__memory_mb_max=416, run__workers=1)
    done = project.cli("build")
    assert done.returncode == 2
    assert "b.jsonl, row 0: the chat template makes 10,000,015 bytes of it, and run.memory_mb_max" in done.stderr


def test_a_library_that_would_take_too_much_memory_is_not_asked(tmp_path: Path) -> None:
    library = Library(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    library.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.engine == "tokenizers"
    text = "ab" * 100_000
    assert tokenizer.memory_bytes(text, 10**9, False) == tokenizer.memory_bytes(text, 1, False) == 340 * 200_000
    assert tokenizer.memory_bytes(text, 1, True) == 450 * 200_000


def test_a_library_that_gives_spans_alone_is_asked_for_conversations_alone(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(character_tokenizers.document()), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.engine == "core" and tokenizer.model is None
    n_tokens = len(tokenizer.encode("ab " * 1000))
    assert tokenizer.memory_bytes("ab " * 1000, 1, False) == 0
    assert tokenizer.memory_bytes("ab " * 1000, 1, True) == 450 * n_tokens


def hold_a_tokenizer_of_letters(project: Project) -> None:
    """A tokenizer that only the library runs, with a token for each letter; and no documents."""
    library = Library(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    library.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    library.add_special_tokens(SPECIAL)
    (project.root / "words").mkdir()
    library.save(str(project.root / "words/tokenizer.json"))
    project.set(tokenizer={"from": "words"}, encode__end_of_document=None)
    for path in (project.root / "data/raw").iterdir():
        path.unlink()


@pytest.mark.parametrize("looked_at", ["encode", "first rows: reject", "first rows: chat", "first rows: chat, each"])
def test_a_document_for_which_a_library_takes_too_much_memory_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch, looked_at: str
) -> None:
    """Wherever a build encodes a document first, also in the look at the first documents before it."""
    ids_of = TokenizersEngine._ids

    def ids_of_a_part(engine: TokenizersEngine, text: str) -> list[int]:
        assert len(text) < 100_000
        return ids_of(engine, text)

    monkeypatch.setattr(TokenizersEngine, "_ids", ids_of_a_part)
    hold_a_tokenizer_of_letters(project)
    text = "ab" * 800_000
    if "chat" in looked_at:
        write_talks(project, "long.jsonl", [[("user", text), ("assistant", "ab")]])
        chat = {"template": "chatml", "turns": "each" if "each" in looked_at else "together"}
        project.set(source__messages_column="messages", encode__chat=chat)
    else:
        project.write("long.jsonl", [text])
        project.set(encode__special_tokens_in_text="reject" if "reject" in looked_at else "as_text")
    project.set(run__memory_mb_max=416, run__workers=1)
    done = project.cli("build")
    assert done.returncode == 2
    n_mb = 720 if "chat" in looked_at else 544
    assert f"long.jsonl, row 0: to encode this document the tokenizers library takes about {n_mb} MB" in done.stderr
    assert "leaves 80 MB to a worker" in done.stderr
    assert ("encode: started" in done.stderr) == (looked_at == "encode")


@pytest.mark.parametrize("kind", ["text", "chat"])
def test_a_document_is_judged_again_where_validate_has_less_memory(project: Project, kind: str) -> None:
    hold_a_tokenizer_of_letters(project)
    text = "ab" * 150_000
    if kind == "chat":
        write_talks(project, "long.jsonl", [[("user", text), ("assistant", "ab")]])
        project.set(source__messages_column="messages", encode__chat={"template": "chatml"})
    else:
        project.write("long.jsonl", [text])
    project.set(run__memory_mb_max=1500, run__workers=1)
    project.build()
    project.set(run__memory_mb_max=416)
    done = project.cli("build", "--only", "validate", "--force")
    assert done.returncode == 2
    assert "long.jsonl, row 0: to encode this document the tokenizers library takes about" in done.stderr


def test_an_unwanted_character_is_found_without_the_spans_of_a_long_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(models.BPE({"a": 0, "b": 1}, []))
    library.normalizer = normalizers.Replace("d", "a")
    library.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    spans_of, asked = TokenizersEngine.spans, list[int]()

    def spans_of_a_part(engine: TokenizersEngine, text: str) -> list[tuple[int, int]]:
        asked.append(len(text))
        return spans_of(engine, text)

    monkeypatch.setattr(TokenizersEngine, "spans", spans_of_a_part)
    with pytest.raises(TokenizerError, match="no token for 'c', or a byte of it, at character 150001"):
        tokenizer.encode("a" * 150_001 + "c" + "b" * 50_000)
    assert max(asked) < 100_000


@pytest.mark.parametrize("chat", [{"mask": "none"}, {"turns": "each"}])
def test_a_conversation_of_which_no_large_part_is_encoded_with_spans_is_built(project: Project, chat: Any) -> None:
    """With mask: none nobody asks for spans, and with turns: each no sample has the message behind the last answer."""
    document = character_tokenizers.document()
    library = Library.from_str(json.dumps(document))
    library.add_special_tokens(SPECIAL)
    (project.root / "words").mkdir()
    library.save(str(project.root / "words/tokenizer.json"))
    for path in (project.root / "data/raw").iterdir():
        path.unlink()
    talk = [("user", "ab"), ("assistant", "ab"), ("user", "ab " * 300_000)]
    write_talks(project, "long.jsonl", [talk])
    project.set(
        tokenizer={"from": "words"},
        source__messages_column="messages",
        encode__chat={"template": "chatml", "stop_token": "unchecked", **chat},
        encode__end_of_document=None,
        run__memory_mb_max=416,
        run__workers=1,
    )
    done = project.cli("build")
    assert done.returncode == 0, done.stderr
