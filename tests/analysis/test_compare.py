"""`tokenmill diff` shows what two tokenizers do differently."""

import json
from pathlib import Path

import pytest

from tests.builders.teams import cli
from tests.conftest import DOCUMENTS, Project
from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.analysis.compare import compare, lines_of
from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import Batch, find_shards, read_batches
from tokenmill.features.convert.inspect import check_tokenizer
from tokenmill.tokenizer.reading import read_json


def trained(texts: list[str], vocab_size: int, pattern: str = "gpt2") -> Tokenizer:
    counter = Counter(pattern)
    counter.update(texts)
    return train_vocab(counter.finish(), vocab_size=vocab_size, pattern=pattern, special_tokens=["<|endoftext|>"])


def batches(folder: Path, texts: list[str]) -> list[tuple[str, Batch]]:
    (folder / "a.txt").write_text("\n".join(texts), encoding="utf-8")
    [shard] = find_shards(folder, "a.txt")
    return [("data", batch) for batch in read_batches(shard, Reading("text", None, "\n"))]


TEXTS = ["low low low lower", "newest newest", "кот кот кот"]


def test_a_tokenizer_does_not_differ_from_itself(tmp_path: Path) -> None:
    one = trained(TEXTS, 270)
    found = compare(one, one, batches(tmp_path, TEXTS))
    assert not found.ids_differ
    assert (found.tokens_added, found.tokens_removed, found.merges_moved, found.words) == ([], [], 0, [])
    assert "equal" in "\n".join(lines_of(found))


def test_added_tokens_moved_merges_and_changed_documents_are_counted(tmp_path: Path) -> None:
    one, other = trained(TEXTS[:1], 259), trained(["low low low lower lower lower lower lower"], 261)
    assert [one.token_bytes(id) for id in range(257, 259)] == [b"lo", b"low"]
    found = compare(one, other, batches(tmp_path, TEXTS))
    assert found.ids_differ
    assert len(found.tokens_added) == other.vocab_size - one.vocab_size + len(found.tokens_removed)
    assert {name: (one.n_documents, one.text_bytes) for name, one in found.yields.items()} == {
        "data Latin": (2, 17 + 13),
        "data Cyrillic": (1, 20),
    }
    assert found.yields["data Latin"].n_changed == 1
    assert found.yields["data Cyrillic"].n_changed == 0
    assert found.words[0].word in ("' low'", "' lower'")
    for words in ("ids differ", "added:", "documents with other ids: 1 of 3 (33.33%)", "data Latin: "):
        assert words in "\n".join(lines_of(found))


def test_a_merge_that_moved_is_no_added_token(tmp_path: Path) -> None:
    one, other = trained(["ab"] * 3 + ["cd"] * 2, 259), trained(["ab"] * 2 + ["cd"] * 3, 259)
    found = compare(one, other, [])
    assert (found.tokens_added, found.merges_added, found.merges_moved, found.tokens_with_another_id) == ([], 0, 2, 2)


def test_a_token_that_no_document_has_makes_ids_differ(tmp_path: Path) -> None:
    one, other = trained(["zqzq zqzq"], 257), trained(["zqzq zqzq"], 258)
    found = compare(one, other, batches(tmp_path, ["nothing of that"]))
    assert found.ids_differ
    assert found.texts_changed == ["zq"]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_compares_directories(project: Project, as_json: bool) -> None:
    for name, size in (("one", 270), ("other", 272)):
        trained([text for texts in DOCUMENTS.values() for text in texts], size).save(project.root / name)
    arguments = ["diff", "one", "other", "--corpus", "data/raw/*"] + ["--json"] * as_json
    done = cli(project, *arguments)
    assert done.returncode == 1, done.stderr
    if as_json:
        found = json.loads(done.stdout)["result"]
        assert found["ids_differ"] is True
        assert len(found["tokens_added"]) == 2
        assert sum(one["n_documents"] for one in found["yields"].values()) == 6
    assert cli(project, "diff", "one", "one").returncode == 0
    assert cli(project, "diff", "one", "none").returncode == 2


def test_bad_documents_are_left_out_and_told_and_languages_come_from_a_column(project: Project) -> None:
    one = trained([text for texts in DOCUMENTS.values() for text in texts], 270)
    one.save(project.root / "one")
    lines = [
        '{"text": "the cat", "lang": "en"}',
        "no JSON",
        '{"text": "le chat", "lang": "fr"}',
        "{}",
        '{"text": "a dog", "lang": "en"}',
    ]
    (project.root / "some.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (project.root / "some.parquet").write_bytes(b"PAR1")
    done = cli(project, "diff", "one", "one", "--corpus", "some.*", "--language", "lang", "--json")
    assert done.returncode == 0, done.stderr
    counted = {name: one["n_documents"] for name, one in json.loads(done.stdout)["result"]["yields"].items()}
    assert counted == {". en": 2, ". fr": 1}
    bad, damaged = done.stderr.splitlines()
    assert bad.startswith("diff: left out 2 bad documents; the first: some.jsonl, row 1: ")
    assert damaged.startswith("diff: left out the unreadable part of 1 damaged shard; the first: some.parquet: ")
    done = cli(project, "diff", "one", "one", "--corpus", "some.jsonl", "--language", "tongue")
    assert done.returncode == 2
    assert (
        "--language tongue, --corpus 'some.jsonl': all documents are bad. some.jsonl, row 0: the key 'tongue'"
        in done.stderr
    )
    done = cli(project, "diff", "one", "one", "--corpus", "none/*")
    assert done.returncode == 2
    assert f"--corpus: expected files that match 'none/*'; found none in {project.root}/none" in done.stderr
    done = cli(project, "diff", "one", "one", "--corpus", "params.yaml")
    assert done.returncode == 2
    assert "params.yaml: files of this kind cannot be read" in done.stderr
    (project.root / "some.txt").write_text("x", encoding="utf-8")
    done = cli(project, "diff", "one", "one", "--corpus", "some.txt", "--language", "lang")
    assert done.returncode == 2
    assert "some.txt has no columns" in done.stderr


def of_characters(n_merges: int) -> Tokenizer:
    """A tokenizer in the manner of SentencePiece: more than one merge makes a token."""
    letters = ["▁", "l", "o", "w", "e", "r"]
    merges = [["l", "o"], ["lo", "w"], ["o", "w"], ["l", "ow"], ["▁", "low"]][:n_merges]
    texts = dict.fromkeys([*(f"<0x{byte:02X}>" for byte in range(256)), *letters, "<unk>", *map("".join, merges)])
    model = {
        "type": "BPE",
        "vocab": {text: id for id, text in enumerate(texts)},
        "merges": merges,
        "unk_token": "<unk>",
    }
    document = {
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        "model": {**model, "byte_fallback": True, "fuse_unk": True},
    }
    return Tokenizer.of(read_json(json.dumps(document).encode(), "tokenizer.json"), "tokenizer.json", 1)


def test_of_the_merges_of_characters_one_for_each_token_is_compared() -> None:
    found = compare(of_characters(5), of_characters(3), [])  # two merges more, which make one token more
    assert (found.merges_added, found.merges_removed, found.merges_moved) == (0, 1, 0)
    assert (found.pattern_changed, found.tokens_removed) == (False, ["'▁low'"])


def test_merges_of_bytes_and_of_characters_are_not_compared() -> None:
    one, other = trained(TEXTS, 270), of_characters(5)
    for found in (compare(one, other, []), compare(other, one, [])):
        assert (found.merges_added, found.merges_removed, found.merges_moved) == (None, None, None)
        assert found.pattern_changed
        assert "merges: not compared" in "\n".join(lines_of(found))


def test_no_more_merges_are_compared_than_a_tiktoken_file_has_tokens(tmp_path: Path) -> None:
    one = trained(["abcd bcd cd ab abc"] * 9, 264)
    one.save(tmp_path)
    ranks = Tokenizer.load(tmp_path / "vocab.tiktoken", pattern="gpt2", special_tokens={"<|endoftext|>": 0})
    assert ranks.n_merges is not None and ranks.n_merges > (one.n_merges or 0)  # every pair that makes a token
    found = compare(one, ranks, [])
    assert (found.merges_added, found.merges_removed) == (0, 0)
    assert check_tokenizer(tmp_path / "vocab.tiktoken", "gpt2")["n_merges"] == one.n_merges


def test_counts_give_the_words_and_the_compression_without_documents() -> None:
    one, other = trained(TEXTS[:1], 259), trained(["low low low lower lower lower lower lower"], 261)
    counter = Counter("gpt2")
    counter.update(TEXTS)
    found = compare(one, other, [], counts=counter.finish())
    assert found.ids_differ and not found.yields and found.words
    assert found.counted is not None
    assert (found.counted.n_documents, found.counted.text_bytes) == (9, sum(len(text.encode()) for text in TEXTS))
    assert found.counted.n_tokens_one == sum(len(one.encode(text)) for text in TEXTS)
    assert found.counted.n_tokens_other == sum(len(other.encode(text)) for text in TEXTS)
    assert any(line.startswith("bytes per token of the counted pre-tokens: ") for line in lines_of(found))


def test_pieces_of_unigram_models_are_compared_with_their_scores() -> None:
    def unigram(score: float) -> Tokenizer:
        vocab = [["<unk>", 0.0], ["a", -1.0], ["b", -1.0], ["ab", score]]
        document = {"version": "1.0", "added_tokens": [], "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab}}
        content = json.dumps(document).encode()
        return Tokenizer.of(read_json(content, "x"), "x", 1)

    found = compare(unigram(-1.5), unigram(-3.0), [])
    assert (found.merges_added, found.merges_removed, found.tokens_added) == (1, 1, [])
