"""Trimming takes out the least used leaves, and the result is the tokenizer whose merges are those that are left."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import reference
from tests.builders.trained import END, SPECIAL, TEXT, TOKENIZER, TRICKY, trained
from tests.conftest import SHARED
from tokenmill import Counter, Tokenizer
from tokenmill.errors import CountsError, ParamsError
from tokenmill.features.convert.formats.pieces import document_of as pieces_document
from tokenmill.training.bpe import Goal, extend
from tokenmill.training.id_counts import ids_in_counts, ids_in_dataset
from tokenmill.training.id_map import id_map
from tokenmill.training.trim import Trimmed, trim

PUBLISHED = SHARED / "tokenizers"


def tokenizer_of(merges: Sequence[tuple[str, str]], **more: Any) -> Tokenizer:
    """A tokenizer with these merges, the bytes in their order, and one special token at the end."""
    document: dict[str, Any] = TOKENIZER.document
    tokens = [token for token in document["model"]["vocab"] if len(token) == 1]
    tokens += dict.fromkeys(left + right for left, right in merges)
    added = [{**document["added_tokens"][0], "id": len(tokens)}]
    vocab = {token: id for id, token in enumerate([*tokens, END])}
    model = {**document["model"], "vocab": vocab, "merges": [list(pair) for pair in merges]}
    return loaded({**document, "added_tokens": added, "model": model, **more})


def loaded(document: Mapping[str, Any]) -> Tokenizer:
    from tokenmill.tokenizer.tokenizer import unpickled

    return unpickled(json.dumps(document).encode(), 0)


def counts_of(tokenizer: Tokenizer, **of: int) -> list[int]:
    """Counts by id, given by the tokens' texts."""
    counts = [0] * (tokenizer.id_max + 1)
    for id, token in tokenizer.tokens.items():
        counts[id] = of.get(token.decode(errors="replace"), 0)
    return counts


def names(tokenizer: Tokenizer, trimmed: Trimmed) -> list[str]:
    return [tokenizer.token_bytes(id).decode() for id in trimmed.dropped]


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.token_bytes(id).decode() for id in tokenizer.encode(text)]


def test_the_leaf_with_the_least_count_goes_and_its_parts_take_over_its_count() -> None:
    old = tokenizer_of([("a", "b"), ("ab", "c"), ("d", "e"), ("f", "g")])
    counts = counts_of(old, ab=1, abc=3, de=3, fg=9)
    assert names(old, trim(old, counts, keep=256 + 3 + 1)) == ["de"]  # of equal counts, the larger id; ab is no leaf
    assert names(old, trim(old, counts, keep=256 + 2 + 1)) == ["de", "abc"]
    assert names(old, trim(old, counts, keep=256 + 1 + 1)) == ["de", "abc", "ab"]  # ab now has 4
    assert trim(old, counts, keep=256 + 1 + 1).last_count == 4


@pytest.mark.parametrize(
    ("min_count", "expected"),
    [(1, []), (3, []), (4, ["de", "abc"]), (5, ["de", "abc", "ab"]), (10, ["de", "abc", "ab", "fg"])],
)
def test_min_count_takes_out_what_is_used_less(min_count: int, expected: list[str]) -> None:
    old = tokenizer_of([("a", "b"), ("ab", "c"), ("d", "e"), ("f", "g")])
    trimmed = trim(old, counts_of(old, ab=1, abc=3, de=3, fg=9), min_count=min_count)
    assert names(old, trimmed) == expected
    assert trimmed.tokenizer.vocab_size == old.vocab_size - len(expected)


def test_the_parts_of_a_dropped_token_merge_with_their_neighbours() -> None:
    old = tokenizer_of([("a", "b"), ("b", "d")])
    new = trim(old, counts_of(old, ab=1, bd=9), keep=258).tokenizer
    assert tokens(old, "abd") == ["ab", "d"]
    assert tokens(new, "abd") == ["a", "bd"]  # not a b d


def test_bytes_special_tokens_and_chosen_tokens_with_their_parts_stay() -> None:
    old = tokenizer_of([("a", "b"), ("ab", "c"), ("d", "e")])
    new = trim(old, counts_of(old, de=9), min_count=100, chosen=["abc"]).tokenizer
    assert {token for token in new.tokens.values() if len(token) > 1} == {b"ab", b"abc", END.encode()}
    assert sum(len(token) == 1 for token in new.tokens.values()) == 256
    assert new.special_tokens == {END: 258}
    assert new.ids == list(range(259))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keep": 256}, "found 256; allowed: 257 (bytes, added and chosen tokens with their parts) to 259"),
        ({"keep": 258, "chosen": ["ab", "de"]}, "found 258; allowed: 259"),
        ({"keep": 260}, "to 259, the size of the tokenizer"),
        ({"keep": 258, "chosen": ["xyz"]}, "chosen: found 'xyz', which is no token"),
        ({}, "one of keep and min_count"),
        ({"keep": 258, "min_count": 1}, "one of keep and min_count"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], words: str) -> None:
    old = tokenizer_of([("a", "b"), ("d", "e")])
    with pytest.raises(ParamsError) as refused:
        trim(old, counts_of(old), **settings)
    assert words in str(refused.value)


def test_a_tokenizer_that_is_not_byte_level_is_refused(tmp_path: Path) -> None:
    from tests.builders.pieces import PIECES, PLAIN

    with pytest.raises(ParamsError, match="cannot be trimmed"):
        trim(loaded(pieces_document(PIECES, False, PLAIN, "a")), [], keep=300)


def naive(merges: Sequence[reference.Pair], counts: Mapping[bytes, int], n_drop: int) -> list[bytes]:
    """What the rules of `trim` say, for merges that make each token once: ids follow the order of the merges."""
    left, uses, gone = list(merges), dict(counts), []
    for _ in range(n_drop):
        made = [b"".join(pair) for pair in left]
        leaves = [token for token in made if not any(token in pair for pair in left)]
        token = min(leaves, key=lambda one: (uses.get(one, 0), -made.index(one)))
        pair = left.pop(made.index(token))
        for part in pair:
            uses[part] = uses.get(part, 0) + uses.get(token, 0)
        gone.append(token)
    return gone


@given(
    texts=st.lists(st.text("abd", min_size=1, max_size=12), min_size=1, max_size=6),
    more=st.lists(st.text("abd", max_size=16), max_size=6),
    data=st.data(),
)
def test_trimming_is_what_its_rules_say_and_encodes_as_the_merges_that_are_left(
    texts: list[str], more: list[str], data: st.DataObject
) -> None:
    old = trained(texts, pattern=None, vocab_size=276, pair_count_min=1)
    assert old.model is not None
    merges = [(old.token_bytes(one.left), old.token_bytes(one.right)) for one in old.model.merges]
    assume(not reference.makes_a_token_twice(merges))
    n_drop = data.draw(st.integers(0, len(merges)))
    counter = Counter(None)
    counter.update(texts)
    counts = ids_in_counts(old, counter.finish())
    trimmed = trim(old, counts.tolist(), keep=old.vocab_size - n_drop)
    dropped = [old.token_bytes(id) for id in trimmed.dropped]
    by_token = {token: int(counts[id]) for id, token in old.tokens.items()}
    assert dropped == naive(merges, by_token, n_drop)
    left = [pair for pair in merges if b"".join(pair) not in dropped]
    ranks = {pair: rank for rank, pair in enumerate(left)}
    for text in (*texts, *more):
        found = [trimmed.tokenizer.token_bytes(id) for id in trimmed.tokenizer.encode(text)]
        assert found == reference.encode(text.encode(), ranks)


@pytest.mark.parametrize("n_drop", [0, 1, 400, 942])
def test_other_libraries_give_the_ids_of_a_trimmed_tokenizer(n_drop: int, tmp_path: Path) -> None:
    counter = Counter("gpt2")
    counter.update(TEXT)
    counts = ids_in_counts(TOKENIZER, counter.finish())
    new = trim(TOKENIZER, counts.tolist(), keep=1200 - n_drop).tokenizer
    new.save(tmp_path)
    judge = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert new.vocab_size == judge.get_vocab_size() == 1200 - n_drop
    assert Tokenizer.load(tmp_path).digest == new.digest
    for text in [*TEXT[:1], *TRICKY]:
        if not any(special in text for special in SPECIAL):
            assert new.encode(text) == judge.encode(text, add_special_tokens=False).ids
    if not n_drop:
        assert new.digest == TOKENIZER.digest


def test_ids_in_the_rest_of_tokenizer_json_are_the_new_ones() -> None:
    single = [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {END: {"id": END, "ids": [258], "tokens": [END]}}
    rest = {
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special},
        "padding": {
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 258,
            "pad_type_id": 0,
            "pad_token": END,
        },
    }
    old = tokenizer_of([("a", "b"), ("d", "e")], **rest)
    new = trim(old, counts_of(old, ab=1), keep=258).tokenizer
    judge = tokenizers.Tokenizer.from_str(json.dumps(new.document))
    assert judge.encode("ab").ids == [new.special_tokens[END], *new.encode("ab")]
    assert new.document["padding"]["pad_id"] == new.special_tokens[END] == 257


def test_a_tiktoken_vocabulary_is_trimmed_too(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    old = Tokenizer.load(tmp_path / "vocab.tiktoken", pattern="gpt2")
    new = trim(old, [0] * (old.id_max + 1), keep=600).tokenizer
    assert new.vocab_size == 600
    for text in TRICKY:
        assert new.decode(new.encode(text)) == text


def test_the_id_map_leads_both_ways_and_has_the_parts_of_dropped_tokens() -> None:
    old = tokenizer_of([("a", "b"), ("b", "d"), ("ab", "c")])
    trimmed = trim(old, counts_of(old, ab=1, abc=2, bd=9), keep=258)
    new = trimmed.tokenizer
    table = id_map(old, new)
    rows = table.to_pylist()
    assert [row["old_id"] for row in rows] == old.ids
    assert table.schema.metadata == {
        b"old_tokenizer_digest": old.digest.encode(),
        b"new_tokenizer_digest": new.digest.encode(),
    }
    for row in rows:
        assert row["bytes"] == old.token_bytes(row["old_id"])
        if row["old_id"] in trimmed.dropped:
            assert row["new_id"] is None
            assert row["parts"] == new.encode(row["bytes"].decode())
        else:
            assert new.token_bytes(row["new_id"]) == row["bytes"] and row["parts"] == []
    assert len({row["new_id"] for row in rows} - {None}) == new.vocab_size


def test_the_id_map_of_an_extension_has_the_old_parts_of_new_tokens() -> None:
    old = trained(["low low lower"], vocab_size=258)
    counter = Counter("gpt2")
    counter.update(["low low lows"])
    new = extend(old, counter.finish(), 260, Goal(pair_count_min=1, pad_vocab_to=4)).tokenizers[0]
    rows = id_map(old, new).to_pylist()
    assert [row["new_id"] for row in rows] == [*range(260)]
    assert [row["old_id"] for row in rows] == [*range(258), None, None]
    assert [row["parts"] for row in rows[258:]] == [old.encode(new.token_bytes(id).decode()) for id in (258, 259)]


def test_the_counts_of_a_dataset_are_those_of_its_tokenizer_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens_per_id.parquet"
    for digest in (TOKENIZER.digest, "0" * 64):
        table = pa.table({"id": pa.array([3, 5], pa.uint32()), "count": pa.array([7, 9], pa.uint64())})
        pq.write_table(table.replace_schema_metadata({"tokenizer_digest": digest}), path)
        if digest == TOKENIZER.digest:
            found = ids_in_dataset(TOKENIZER, path)
            assert found[[3, 5]].tolist() == [7, 9] and found.sum() == 16
    with pytest.raises(CountsError, match=f"expected the counts of the tokenizer {TOKENIZER.digest}"):
        ids_in_dataset(TOKENIZER, path)
    with pytest.raises(CountsError, match="missing"):
        ids_in_dataset(TOKENIZER, tmp_path / "none")


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs the published tokenizers, which are not the project's own")
@pytest.mark.parametrize("name", ["gpt-2", "qwen3", "starcoder", "deepseek-llm", "cl100k_base", "o200k_base"])
def test_published_tokenizers_are_trimmed_to_what_tokenizers_reads_alike(name: str) -> None:
    old = Tokenizer.load(PUBLISHED / name)
    new = trim(old, [0] * (old.id_max + 1), keep=old.vocab_size // 3).tokenizer
    judge = tokenizers.Tokenizer.from_str(json.dumps(new.document))
    for path in sorted((SHARED / "corpus/hard").iterdir()):
        text = path.read_bytes()[:20_000].decode(errors="replace")
        if not any(special in text for special in new.special_tokens):
            assert new.encode(text) == judge.encode(text, add_special_tokens=False).ids
