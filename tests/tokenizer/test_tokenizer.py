"""A tokenizer gives text back, reads special tokens as text, and is the same in every library that loads it."""

import base64
import copy
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import tiktoken
import tiktoken.load
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.chats import DOCUMENTS
from tests.builders.trained import END, PATTERNS, SPECIAL, TEXT, TOKENIZER, TRICKY, trained
from tokenmill import Counter, Tokenizer, _core, train_vocab
from tokenmill.errors import CorpusError, ParamsError, PatternError, TokenizerError
from tokenmill.tokenizer.model import characters_of

os.environ["TOKENIZERS_PARALLELISM"] = "false"


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER.decode_bytes(ids) == text.encode()


@given(st.lists(st.sampled_from([*SPECIAL, "<|", "|>", "endoftext", " ", "x"])).map("".join))
def test_text_of_special_tokens_stays_text(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert not set(ids) & set(TOKENIZER.special_tokens.values())
    assert TOKENIZER.decode(ids) == text


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_a_batch_is_the_same_as_text_by_text(threads: int | None) -> None:
    batch = TOKENIZER.encode_batch(TRICKY, threads=threads)
    assert batch.type == pa.large_list(pa.uint32())
    assert batch.to_pylist() == [TOKENIZER.encode(text) for text in TRICKY]
    assert TOKENIZER.decode_batch(batch, threads=threads).to_pylist() == [text.encode() for text in TRICKY]
    assert TOKENIZER.encode_batch(pa.chunked_array([TRICKY[:3], TRICKY[3:]])).equals(batch)
    assert TOKENIZER.encode_batch([text.encode() for text in TRICKY]).equals(batch)


def test_end_id_ends_every_text_as_an_id() -> None:
    batch = TOKENIZER.encode_batch(["a", "", END], end_id=0)
    assert [one[-1] for one in batch.to_pylist()] == [0, 0, 0]
    assert [one[:-1] for one in batch.to_pylist()] == [TOKENIZER.encode(text) for text in ("a", "", END)]


def test_narrow_lists_decode_too() -> None:
    narrow = pa.array([TOKENIZER.encode("the cat"), []], pa.list_(pa.uint16()))
    assert TOKENIZER.decode_batch(narrow).to_pylist() == [b"the cat", b""]
    assert TOKENIZER.decode_batch(narrow[1:]).to_pylist() == [b""]
    three = pa.concat_arrays([narrow, narrow[:1]])
    assert TOKENIZER.decode_batch(three[1:]).to_pylist() == [b"", b"the cat"]
    assert TOKENIZER.decode_batch(three[2:2]).to_pylist() == []


def test_lists_of_ids_decode_to_their_own_texts_alone() -> None:
    begin, end = TOKENIZER.decode_bytes([2]), TOKENIZER.decode_bytes([3, 4])
    for kind in (pa.uint16(), pa.uint32()):
        for lists in (pa.list_(kind), pa.large_list(kind)):
            ids = pa.array([[2, *TOKENIZER.encode(text), 3, 4] for text in TRICKY], lists)
            for strings in (pa.string(), pa.large_string(), pa.large_binary()):
                texts = pa.array([text.encode() for text in TRICKY], pa.large_binary()).cast(strings)
                assert TOKENIZER.decodes_to(ids, texts, begin, end)
                assert TOKENIZER.decodes_to(ids[1:], texts[1:], begin, end)
                assert not TOKENIZER.decodes_to(ids[1:], texts[:-1], begin, end)
                assert not TOKENIZER.decodes_to(ids, texts[1:], begin, end)
                assert not TOKENIZER.decodes_to(ids, texts, begin)
                assert not TOKENIZER.decodes_to(ids, texts, b"", end)
    unknown = pa.array([[TOKENIZER.id_max + 1]], pa.list_(pa.uint32()))
    assert not TOKENIZER.decodes_to(unknown, pa.array([""]))
    assert not TOKENIZER.decodes_to(pa.array([[2], None], pa.list_(pa.uint32())), pa.array(["a", ""]))


def test_special_tokens_decode_to_their_text() -> None:
    assert TOKENIZER.decode([0, 1]) == END + "<|pad|>"
    assert TOKENIZER.token_bytes(0) == END.encode()


def test_half_a_character_decodes_to_its_bytes() -> None:
    ids = TOKENIZER.encode("🙂")[:1]
    assert TOKENIZER.decode(ids) == "\ufffd"
    assert "🙂".encode().startswith(TOKENIZER.decode_bytes(ids))


@given(st.lists(st.integers(0, TOKENIZER.id_max), max_size=700))
def test_any_ids_decode_to_what_python_makes_of_their_bytes(ids: list[int]) -> None:
    found = b"".join(TOKENIZER.token_bytes(id) for id in ids)
    for one in (ids, pa.array(ids, pa.uint16()), pa.array([0, *ids], pa.uint32())[1:]):
        assert TOKENIZER.decode_bytes(one) == found
        assert TOKENIZER.decode(one) == found.decode(errors="replace")


def test_an_array_of_ids_decodes_wherever_they_lie_in_memory() -> None:
    ids = pa.array(TOKENIZER.encode("the cat"), pa.uint32())
    at_odd_addresses = pa.py_buffer(b"\0" + ids.buffers()[1].to_pybytes()).slice(1)
    arrays = [
        pa.Array.from_buffers(ids.type, len(ids), [None, at_odd_addresses]),
        pa.array([None, *ids.to_pylist()], pa.uint32())[1:],  # its nulls are not counted
        pa.array([7, *ids.to_pylist(), 7], pa.uint16())[1:-1],
        ids.to_numpy()[:],
    ]
    assert [TOKENIZER.decode(one) for one in arrays] == ["the cat"] * len(arrays)


def test_400_000_ids_decode_as_a_few_do() -> None:
    ids = TOKENIZER.encode("the cat naïve 🙂 " * 50)
    many = pa.array(ids * (400_000 // len(ids)), pa.uint32())
    assert TOKENIZER.decode(many) == "the cat naïve 🙂 " * (50 * (400_000 // len(ids)))


@pytest.mark.parametrize("chars", ["é", "語", "🙂", "Привет, мир. ", "naïve 語🙂", "\x00é\ufeff"])
def test_text_beyond_ascii_of_any_length_comes_back(chars: str) -> None:
    for n_bytes in (1, 60, 64, 65, 1000, 1 << 16, (1 << 20) - 16, (1 << 20) + 9):
        text = chars * (n_bytes // len(chars.encode()) + 1)
        ids = TOKENIZER.encode_batch([text])[0].values
        assert TOKENIZER.decode(ids) == text
        first = TOKENIZER.token_bytes(ids[0].as_py())
        rest = text.encode().removeprefix(first).decode(errors="replace")
        assert TOKENIZER.decode(ids.to_pylist()[1:]) == rest


class Indexed:
    """What Python takes for an integer without being one."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize(
    ("element", "error", "says"),
    [
        (-1, TokenizerError, "integers from 0"),
        (2**32, TokenizerError, "integers from 0"),
        (2**80, TokenizerError, "integers from 0"),
        (2**32 - 1, TokenizerError, "id 4294967295 is not in the vocabulary"),
        (Indexed(-1), TokenizerError, "integers from 0"),
        ("a", TypeError, r"found 'a' \(str\) at 1"),
        (1.0, TypeError, r"found 1.0 \(float\) at 1"),
        (None, TypeError, "None"),
        ([1], TypeError, "list"),
    ],
)
def test_what_is_no_id_in_a_list_is_an_error(element: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        TOKENIZER.decode([2, element])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        (7, TypeError, "expected a list or an array of integers, .*; found 7"),
        ("a", TypeError, "found 'a'"),
        (b"ab", TypeError, "found b'ab'"),
        ({2, 3}, TypeError, "found {2, 3}"),
        ((2, "a"), TypeError, r"found 'a' \(str\) at 1"),
        ([2, 10**5000], TokenizerError, "found an integer of 16610 bits at 1"),
        (np.array([1.0]), TypeError, "an array of double"),
        (pa.array(["300"]), TypeError, "an array of string"),
        (pa.array([[1]]), TypeError, "an array of list"),
        (pa.record_batch({"a": [1]}), TypeError, "expected a list or an array of integers"),
        (pa.DictionaryArray.from_arrays(pa.array([0], pa.uint32()), pa.array(["a"])), TypeError, "an array of dict"),
        (np.array([[1, 2]]), TypeError, "expected a list or an array of integers"),
        (np.array([1], ">u4"), TypeError, "expected a list or an array of integers"),
        (pa.opaque(pa.uint32(), "a", "b").wrap_array(pa.array([1], pa.uint32())), TypeError, "an array of extension"),
        (pa.array([1, None], pa.uint32()), TokenizerError, "found a null at 1"),
        (pa.array([7, None, 2], pa.uint32())[1:], TokenizerError, "found a null at 0"),
        (np.array([1, -1]), TokenizerError, "found -1 at 1"),
        (pa.array([-1]), TokenizerError, "negative or beyond 32 bits"),
        (np.array([2**32]), TokenizerError, "negative or beyond 32 bits"),
        ((2**40,), TokenizerError, "negative or beyond 32 bits"),
    ],
)
def test_what_are_no_ids_is_an_error(ids: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        TOKENIZER.decode(ids)


@pytest.mark.parametrize("wrap", [list, set, lambda ids: {"a": ids}])
def test_ids_nested_without_end_are_an_error(wrap: Callable[[Any], Any]) -> None:
    deep: Any = ()
    for _ in range(sys.getrecursionlimit() * 2):
        deep = (deep,)
    with pytest.raises(TypeError, match="ids: expected"):
        TOKENIZER.decode(wrap(deep))
    with pytest.raises(TokenizerError, match="list 0: expected"):
        TOKENIZER.decode_batch([wrap(deep)])


def test_no_ids_at_all_are_no_text() -> None:
    nothing: list[Any] = [
        [],
        (),
        pa.array([]),
        np.array([]),
        pa.array([], pa.uint16()),
        pa.chunked_array([], pa.int64()),
    ]
    assert [TOKENIZER.decode(ids) for ids in nothing] == [""] * len(nothing)
    assert TOKENIZER.decode(range(2)) == END + "<|pad|>"


def test_lists_of_ids_in_chunks_decode_and_what_is_none_is_an_error() -> None:
    lists = TOKENIZER.encode_batch(["the cat", "", "a"])
    assert TOKENIZER.decode_batch(pa.chunked_array([lists[:1], lists[1:]])).to_pylist() == [b"the cat", b"", b"a"]
    wrongs: list[Any] = [
        [1],
        [["a"]],
        [[-1]],
        [[2**32]],
        [[2**70]],
        np.array([1]),
        [[1.0]],
        [[1.9]],
        [b"12"],
        [[2], None],
        pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32())),
    ]
    for wrong in wrongs:
        with pytest.raises(TokenizerError, match=r"expected lists of integers from 0 to \d+; list [01]: "):
            TOKENIZER.decode_batch(wrong)
    with pytest.raises(TokenizerError, match=r"expected lists of integers from 0 to \d+; found None"):
        TOKENIZER.decode_batch(None)
    with pytest.raises(TokenizerError, match=r"list 1: .* found -1 at 2, which is negative"):
        TOKENIZER.decode_batch([[2], [2, 3, -1]])
    with pytest.raises(TokenizerError, match=r"list 1: .*None"):
        TOKENIZER.decode_batch(pa.array([[2], None], pa.list_(pa.uint32())))


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int64()), pa.list_(pa.uint8(), 2), pa.large_list(pa.uint16()), pa.list_view(pa.int32())],
)
def test_lists_of_any_integers_decode(kind: pa.DataType) -> None:
    lists = pa.array([[2, 3], [4, 5], [6, 7]], kind)
    expected = [TOKENIZER.decode_bytes(ids) for ids in ([2, 3], [4, 5], [6, 7])]
    assert TOKENIZER.decode_batch(lists).to_pylist() == expected
    assert TOKENIZER.decode_batch(lists[1:]).to_pylist() == expected[1:]
    assert TOKENIZER.decode_batch(pa.chunked_array([lists[:1], lists[1:]])).to_pylist() == expected
    nothing: list[Any] = [[], [[]], lists[:0], np.array([]), [np.array([])]]
    assert [TOKENIZER.decode_batch(ids).to_pylist() for ids in nothing] == [[], [b""], [], [], [b""]]


def test_each_list_may_be_of_another_kind() -> None:
    lists: list[Any] = [
        [2, True],
        range(3, 5),
        np.array([4, 5], "i8"),
        pa.array([5], pa.uint16()),
        (6,),
        np.array([]),
        [Indexed(7)],
    ]
    assert TOKENIZER.decode_batch(lists).to_pylist() == [TOKENIZER.decode_bytes(ids) for ids in lists]
    assert TOKENIZER.decode_batch(pl.Series([[2], [3, 4]])).to_pylist() == [
        TOKENIZER.decode_bytes([2]),
        TOKENIZER.decode_bytes([3, 4]),
    ]


def test_a_row_of_a_batch_decodes() -> None:
    batch = TOKENIZER.encode_batch(["the cat", "naïve"])
    assert [TOKENIZER.decode(row) for row in batch] == ["the cat", "naïve"]


def test_what_stands_for_an_integer_in_a_list_is_an_id() -> None:
    assert TOKENIZER.decode([True, Indexed(0), np.uint16(1)]) == "<|pad|>" + END + "<|pad|>"  # type: ignore[list-item]


def test_a_list_that_shrinks_while_it_is_read_is_an_error() -> None:
    class Shrinking(Indexed):
        def __index__(self) -> int:
            ids.clear()
            return 0

    ids: list[object] = [0, Shrinking(0), 10**6, 10**6]
    with pytest.raises(IndexError):
        TOKENIZER.decode(ids)  # type: ignore[arg-type]


def test_an_element_may_change_what_comes_after_it() -> None:
    class Replacing(Indexed):
        def __index__(self) -> int:
            ids[2:] = [3, 4]
            return 5

    ids: list[Any] = [2, Replacing(0), 10**6, 10**6]
    assert TOKENIZER.decode_bytes(ids) == TOKENIZER.decode_bytes([2, 5, 3, 4])


def test_a_list_that_is_cut_between_two_looks_at_it_is_an_error() -> None:
    class Cutting(Indexed):
        def __index__(self) -> int:
            del ids[50:]
            return 2

    ids: list[Any] = [*range(300, 310), Cutting(0), *range(300, 400)]
    with pytest.raises(IndexError):
        TOKENIZER.decode(ids)


def test_an_element_may_decode_itself() -> None:
    class Decoding(Indexed):
        def __index__(self) -> int:
            assert TOKENIZER.decode([3, 4]) == TOKENIZER.decode(pa.array([3, 4], pa.uint32()))
            return 5

    assert TOKENIZER.decode_bytes([2, Decoding(0), 6]) == TOKENIZER.decode_bytes([2, 5, 6])  # type: ignore[list-item]


def test_after_an_error_the_next_text_is_its_own_alone() -> None:
    for wrong in ([300, TOKENIZER.id_max + 1], pa.array([300, 2**32 - 1], pa.uint32())):
        with pytest.raises(TokenizerError, match="is not in the vocabulary"):
            TOKENIZER.decode(wrong)
        assert TOKENIZER.decode_bytes([2]) == TOKENIZER.token_bytes(2)


def test_many_numpy_integers_in_a_list_are_ids() -> None:
    ids = TOKENIZER.encode("the cat naïve 🙂 " * 20)
    assert TOKENIZER.decode(list(np.array(ids))) == TOKENIZER.decode(ids)
    assert TOKENIZER.decode([*ids, *np.array(ids), *ids]) == TOKENIZER.decode(ids * 3)


def test_ids_decode_from_lists_and_from_arrays() -> None:
    ids = TOKENIZER.encode("the cat naïve")
    for kind in (pa.uint16(), pa.uint32(), pa.int64()):
        array = pa.array(ids, kind)
        assert (
            TOKENIZER.decode(array)
            == TOKENIZER.decode(array.to_numpy())
            == TOKENIZER.decode(tuple(ids))
            == "the cat naïve"
        )
    with pytest.raises(TokenizerError, match="integers from 0"):
        TOKENIZER.decode(pa.array([-1]))
    assert TOKENIZER.decode_batch([ids, [], ids[:1]]).to_pylist()[0] == "the cat naïve".encode()
    with pytest.raises(TokenizerError, match="list 1: id 5000 "):
        TOKENIZER.decode_batch([ids, [5000]])
    with pytest.raises(TokenizerError, match="lists of integers"):
        TOKENIZER.decode_batch([[-1]])


def test_a_warm_cache_or_none_changes_no_id_and_counts_are_lengths(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    expected = TOKENIZER.encode_batch(TRICKY)
    counter = Counter("gpt2")
    counter.update(TRICKY)
    for cache_mb_max in (0, 1, 64):
        again = Tokenizer.load(tmp_path, cache_mb_max=cache_mb_max)
        assert again.encode_batch(TRICKY).equals(expected)
        again.warm(counter.finish(), pretokens_max=40)
        assert again.encode_batch(TRICKY).equals(expected)
        allowed = again.encode_batch(TRICKY, special="allow")
        again = again.shared_in(tmp_path)
        assert again.encode_batch(TRICKY).equals(expected)
        again.warm(counter.finish(), pretokens_max=40, special="allow")
        assert again.encode_batch(TRICKY, special="allow").equals(allowed)
        assert again.count_tokens(TRICKY).to_pylist() == [len(ids) for ids in expected.to_pylist()]
        ids, starts = again.encode_batch_with_starts(TRICKY, end_id=0)
        assert [one[-1] for one in starts.to_pylist()] == [len(text.encode()) for text in TRICKY]
        assert [one[:-1] for one in ids.to_pylist()] == expected.to_pylist()


@pytest.mark.parametrize("id", [1200, 2**32 - 1, 2**40, -1])
def test_an_unknown_id_is_an_error(id: int) -> None:
    with pytest.raises(TokenizerError):
        TOKENIZER.decode([id])
    with pytest.raises(TokenizerError):
        TOKENIZER.token_bytes(id)
    with pytest.raises(TokenizerError):
        TOKENIZER.encode_batch(["a"], end_id=id)


def test_texts_that_are_none_are_errors() -> None:
    with pytest.raises(CorpusError):
        TOKENIZER.encode_batch(["a", None])  # type: ignore[arg-type]
    with pytest.raises(CorpusError):
        TOKENIZER.encode_batch([b"\xff"])
    with pytest.raises(CorpusError):
        TOKENIZER.encode("\ud800")
    with pytest.raises(TypeError):
        TOKENIZER.encode_batch("abc")
    with pytest.raises(ValueError, match="threads: found 0"):
        TOKENIZER.encode_batch(["abc"], threads=0)
    with pytest.raises(TypeError, match="threads: found '2'; expected an integer of 1"):
        TOKENIZER.encode_batch(["abc"], threads="2")  # type: ignore[arg-type]
    for threads in (np.int64(2), 2**64):
        assert TOKENIZER.encode_batch(["abc"], threads=threads).equals(TOKENIZER.encode_batch(["abc"]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"found ndarray\. Give its tolist\(\)"):
        TOKENIZER.encode_batch(np.array(["abc"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("special", ["as_text", "allow", "reject"])
@pytest.mark.parametrize(
    "texts",
    [["a", b"b"], [b"a", "b"], ["a", pa.scalar("b")], [b"a", bytearray(b"b")], [pa.scalar("a")]],
    ids=["str, bytes", "bytes, str", "scalar second", "bytearray", "scalar"],
)
def test_texts_of_two_kinds_are_refused_under_every_policy(texts: Any, special: Any) -> None:
    with pytest.raises(TypeError, match="expected a list of str or a list of bytes; found"):
        TOKENIZER.encode_batch(texts, special=special)


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum(["a", "the cat", "é"])], ids=str)
def test_a_column_of_polars_is_encoded_whatever_holds_its_strings(kind: Any) -> None:
    texts = ["a", "the cat", "é", "a"]
    assert TOKENIZER.encode_batch(pl.Series(texts, dtype=kind)).equals(TOKENIZER.encode_batch(texts))
    with pytest.raises(CorpusError, match="text 1 is null"):
        TOKENIZER.encode_batch(pl.Series(["a", None], dtype=kind))


@pytest.mark.parametrize("id", ["2", [2], 1.0])
def test_what_is_no_integer_is_no_end_id_and_no_token(id: Any) -> None:
    with pytest.raises(TypeError, match=r"end_id: expected an integer; found .* \((str|list|float)\)"):
        TOKENIZER.encode_batch(["a"], end_id=id)
    with pytest.raises(TypeError, match=r"id: expected an integer; found .* \((str|list|float)\)"):
        TOKENIZER.token_bytes(id)


@pytest.mark.parametrize(("cache_mb_max", "error"), [(-1, ValueError), (None, TypeError), (1.5, TypeError)])
def test_a_cache_of_no_length_is_refused(tmp_path: Path, cache_mb_max: Any, error: type[Exception]) -> None:
    TOKENIZER.save(tmp_path)
    assert Tokenizer.load(tmp_path, cache_mb_max=2**63).encode("a") == TOKENIZER.encode("a")
    with pytest.raises(error, match=r"cache_mb_max: found .*; expected an integer of 0 or more"):
        Tokenizer.load(tmp_path, cache_mb_max=cache_mb_max)


def test_what_a_tokenizer_says_of_itself() -> None:
    assert (TOKENIZER.engine, TOKENIZER.engine_reason, TOKENIZER.pattern) == ("core", None, "gpt2")
    assert (TOKENIZER.vocab_size, TOKENIZER.id_max) == (1200, 1199)
    assert TOKENIZER.special_tokens == {END: 0, "<|pad|>": 1}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_saved_tokenizer_is_the_same_when_loaded(tmp_path: Path, pattern: str | None) -> None:
    tokenizer = trained(TEXT[:2], pattern, vocab_size=400, special_tokens=SPECIAL)
    tokenizer.save(tmp_path / "a")
    loaded = Tokenizer.load(tmp_path / "a")
    assert loaded.engine_reason is None
    assert (loaded.digest, loaded.pattern, loaded.special_tokens) == (
        tokenizer.digest,
        pattern,
        tokenizer.special_tokens,
    )
    loaded.save(tmp_path / "b")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.tiktoken"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_regex_that_cuts_like_a_named_pattern_is_saved_as_that(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    (regex,) = _core.patterns_like()["cl100k"]
    like = Tokenizer.load(tmp_path / "vocab.tiktoken", regex)
    like.save(tmp_path / "a")
    named = Tokenizer.load(tmp_path / "vocab.tiktoken", "cl100k")
    assert like.pattern == Tokenizer.load(tmp_path / "a").pattern == "cl100k"
    assert like.digest == named.digest


def test_special_tokens_with_letters_that_stand_for_bytes_are_their_text(tmp_path: Path) -> None:
    special = ["<|été|>", "<|Ċ|>", "<ĠÃ©>"]
    learned = trained(TEXT[:2], vocab_size=400, special_tokens=special)
    learned.save(tmp_path / "a")
    ids = {text: 1000 + i for i, text in enumerate(special)}
    ranks = Tokenizer.load(tmp_path / "a/vocab.tiktoken", "gpt2", ids)
    ranks.save(tmp_path / "b")
    for folder, tokenizer in (("a", learned), ("b", ranks)):
        loaded = Tokenizer.load(tmp_path / folder)
        assert (loaded.engine_reason, loaded.digest) == (None, tokenizer.digest)
        peer = tokenizers.Tokenizer.from_file(str(tmp_path / folder / "tokenizer.json"))
        for policy in ("as_text", "allow"):
            peer.encode_special_tokens = policy == "as_text"
            for text in ("".join(special), "<|\n|>", "<|\xe9", *TRICKY):
                assert peer.encode(text).ids == tokenizer.encode(text, policy) == loaded.encode(text, policy)
                assert loaded.decode(loaded.encode(text, policy)) == text


@pytest.mark.parametrize("pattern", PATTERNS)
def test_tokenizers_gives_the_same_ids(tmp_path: Path, pattern: str | None) -> None:
    tokenizer = trained(TEXT[:2], pattern, vocab_size=400, special_tokens=SPECIAL)
    tokenizer.save(tmp_path)
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert {peer.token_to_id(text): text for text in SPECIAL} == {0: END, 1: "<|pad|>"}
    peer.encode_special_tokens = True
    for text in TRICKY:
        assert peer.encode(text).ids == tokenizer.encode(text)
        assert peer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
def test_transformers_gives_the_same_ids(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    TOKENIZER.save(tmp_path, end_of_document=END)
    peer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert (peer.eos_token, peer.eos_token_id) == (END, 0)
    for text in TRICKY:
        assert peer.encode(text, add_special_tokens=False, split_special_tokens=True) == TOKENIZER.encode(text)
        assert peer.decode(TOKENIZER.encode(text)) == text


def test_tiktoken_gives_the_same_ids(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    path = tmp_path / "vocab.tiktoken"
    (pattern,) = TOKENIZER.steps or ()
    peer = tiktoken.Encoding(
        "ours",
        pat_str=pattern,
        mergeable_ranks=tiktoken.load.load_tiktoken_bpe(str(path)),
        special_tokens=TOKENIZER.special_tokens,
    )
    again = Tokenizer.load(path, pattern="gpt2", special_tokens=TOKENIZER.special_tokens)
    for text in TRICKY:
        assert peer.encode_ordinary(text) == TOKENIZER.encode(text) == again.encode(text)
    assert again.special_tokens == TOKENIZER.special_tokens


def test_an_empty_token_of_a_tiktoken_file_is_decoded_to_nothing(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    path = tmp_path / "vocab.tiktoken"
    path.write_bytes(path.read_bytes() + b"= 5000\n")
    ours = Tokenizer.load(path, "gpt2", TOKENIZER.special_tokens)
    peer = tiktoken.Encoding(
        name="with an empty token",
        pat_str=_core.patterns()["gpt2"][0],
        mergeable_ranks=tiktoken.load.load_tiktoken_bpe(str(path)),
        special_tokens=TOKENIZER.special_tokens,
    )
    for text in TRICKY:
        assert ours.encode(text) == peer.encode(text, disallowed_special=())
    assert ours.decode([5000, 66, 5000]) == peer.decode([5000, 66, 5000])
    assert (ours.engine, ours.token_bytes(5000)) == ("tokenizers", b"")
    ours.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").digest == ours.digest


def test_an_added_token_with_the_id_of_a_byte_decodes_as_tokenizers_decodes_it(tmp_path: Path) -> None:
    document = copy.deepcopy(TOKENIZER.document)
    vocab, flags = (
        document["model"]["vocab"],
        {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False},
    )
    byte, other = characters_of("ŀ".encode())
    merged = next(text for text in vocab if len(text) > 2 and text.startswith("Ġ"))
    for text in (byte, merged):
        document["added_tokens"].append({"id": vocab[text], "content": text, "special": False, **flags})
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    ours, peer = Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))
    pairs = [[vocab[byte], vocab[other]], [vocab["a"], vocab[merged], vocab["a"]]]
    assert [ours.decode(ids) for ids in pairs] == [peer.decode(ids, skip_special_tokens=False) for ids in pairs]
    assert ours.decode(pairs[0]) == "ŀ"


def test_a_tiktoken_file_saved_as_a_directory_keeps_its_ids(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "a")
    ranks = Tokenizer.load(tmp_path / "a/vocab.tiktoken", "gpt2", TOKENIZER.special_tokens)
    ranks.save(tmp_path / "b")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "b/tokenizer.json"))
    peer.encode_special_tokens = True
    loaded = Tokenizer.load(tmp_path / "b")
    assert ranks.n_merges != loaded.n_merges and ranks.digest == loaded.digest
    for text in TRICKY:
        assert peer.encode(text).ids == loaded.encode(text) == TOKENIZER.encode(text)


def test_the_config_names_the_end_of_a_document(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    assert "eos_token" not in json.loads((tmp_path / "tokenizer_config.json").read_text())
    TOKENIZER.save(tmp_path, end_of_document="<|pad|>")
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["eos_token"] == "<|pad|>"
    with pytest.raises(ParamsError, match="no special token"):
        TOKENIZER.save(tmp_path, end_of_document="</s>")
    TOKENIZER.save(tmp_path, pad_token="<|pad|>", unk_token=END, model_max_length=7)
    found = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (found["pad_token"], found["unk_token"], found["model_max_length"]) == ("<|pad|>", END, 7)
    with pytest.raises(ParamsError, match="pad_token: '</s>' is no special token of this tokenizer; it has: "):
        TOKENIZER.save(tmp_path, pad_token="</s>")


def test_a_missing_file_is_named_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.jsn").touch()
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: .*Nearest there: tokenizer\.jsn"):
        Tokenizer.load(tmp_path)
    with pytest.raises(TokenizerError, match="no such file"):
        Tokenizer.load(tmp_path / "a/b/c.json")
    with pytest.raises(TokenizerError, match="Fetch a published version with `tokenmill fetch`"):
        Tokenizer.load("tokenizer@v1")


@pytest.mark.parametrize(
    ("path", "says"),
    [("a\0b", r"'a\\x00b': not a valid path"), ("a\ud800", "not a valid path"), ("x" * 5000, "File name too long")],
    ids=["NUL", "surrogate", "long"],
)
def test_what_is_no_path_is_refused(path: str, says: str) -> None:
    with pytest.raises(TokenizerError, match=says):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no tokens"),
        (b"YQ== 0\n!! 1\n", "line 2"),
        (b"YQ== 0\nYg==\n", "line 2"),
        (b"YQ== 0\nYg== x\n", "line 2"),
        (b"YQ== 0\nYg== -1\n", "line 2"),
        (b"YQ== 0\nYg== 99999999999\n", "line 2"),
        (b"YQ== 0\nYg== 0\n", "line 2: .*; line 1 has it"),
        (b"YQ== 0\nYg== 2\n\nYQ== 1\n", "line 4: .*; line 1 has it"),
        (b"YQ== 0\n 1\n", "line 2: expected a token"),
        (b"YQ== 0\nYg== 2147483648\n", "token b'b' has id 2147483648, but there are 2 tokens"),
    ],
)
def test_a_wrong_line_of_a_tiktoken_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.tiktoken"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(path, "gpt2")


@pytest.mark.parametrize("n_bytes", [4_000, 15_000])
def test_a_tiktoken_file_whose_tokens_have_too_many_merges_is_refused_by_token(tmp_path: Path, n_bytes: int) -> None:
    chain = [b"a" * n for n in (range(1, n_bytes) if n_bytes < 10_000 else (n_bytes,))]
    path = tmp_path / "a.tiktoken"
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), id) for id, token in enumerate(chain)))
    with pytest.raises(
        TokenizerError, match=r"a\.tiktoken: token b'a+.* with id \d+ has [\d,]+ bytes: the tokens up to"
    ):
        Tokenizer.load(path, "gpt2")


def test_a_tiktoken_file_with_some_long_tokens_is_loaded_and_saved(tmp_path: Path) -> None:
    path = tmp_path / "a.tiktoken"
    tokens = [*map(bytes, zip(range(256))), *(b"a" * n for n in range(2, 257)), b"b" * 2_000]
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), id) for id, token in enumerate(tokens)))
    tokenizer = Tokenizer.load(path, "gpt2")
    tokenizer.save(tmp_path)
    assert tokenizer.encode("a" * 256) == Tokenizer.load(tmp_path).encode("a" * 256) == [510]


def test_a_tiktoken_file_needs_a_pattern_and_ids_that_do_not_clash(tmp_path: Path) -> None:
    path = tmp_path / "a.tiktoken"
    path.write_bytes(b"YQ== 0\nYg== 1\n")
    with pytest.raises(TokenizerError, match="Give pattern= "):
        Tokenizer.load(path)
    with pytest.raises(PatternError):
        Tokenizer.load(path, "gpt3")
    for special in ({"<a>": 1}, {"<a>": 2, "<b>": 2}, {"": 2}, {"b": 2}, {"\ud800": 2}, {"<a>": -1}):
        with pytest.raises(TokenizerError, match=r"a\.tiktoken: special token "):
            Tokenizer.load(path, "gpt2", special)


@pytest.mark.parametrize(("text", "id"), [("<|e|>", 2**31), ("ab", 9), ("Ġa", 9), ("é", 9)])
def test_a_special_token_that_a_saved_file_would_be_refused_for_is_refused_before(
    tmp_path: Path, text: str, id: int
) -> None:
    tokens = [b"a", b"b", b"ab", b" a", b" "]
    path = tmp_path / "a.tiktoken"
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), i) for i, token in enumerate(tokens)))
    with pytest.raises(TokenizerError, match=r"a\.tiktoken: (special )?token '.*' (with|has) id \d+"):
        Tokenizer.load(path, "gpt2", {text: id})
    Tokenizer.load(path, "gpt2", {"<|e|>": 9}).save(tmp_path / "b")
    assert Tokenizer.load(tmp_path / "b").special_tokens == {"<|e|>": 9}


def test_a_byte_without_a_token_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tiktoken"
    path.write_bytes(b"YQ== 0\nYg== 1\n")
    assert Tokenizer.load(path, "gpt2").encode("abba") == [0, 1, 1, 0]
    with pytest.raises(TokenizerError):
        Tokenizer.load(path, "gpt2").encode("abc")


@pytest.mark.parametrize(
    ("pattern", "splitter"), [("gpt2", "scanner"), ("o200k", "scanner"), (r"\p{L}+|\P{L}+", "regex"), (None, None)]
)
def test_a_tokenizer_says_what_splits_its_text(pattern: str | None, splitter: str | None) -> None:
    counter = Counter(pattern)
    counter.update(["a cat"])
    assert train_vocab(counter.finish(), 256, pattern).splitter == splitter


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_length_vocabulary_and_equality_are_as_in_the_library(name: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(DOCUMENTS[name]()))
    tokenizer, library = Tokenizer.load(tmp_path), tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab() == library.get_vocab()
    assert len(tokenizer) == len(tokenizer.get_vocab())
    assert {tokenizer, Tokenizer.load(tmp_path)} == {tokenizer}
    assert tokenizer not in (TOKENIZER, str(tokenizer))
