"""The core's encoder against the naive oracle, tokenizers and tiktoken."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

import tokenmill
from tests import reference
from tests.builders.core_calls import BYTES, ORDER, Pair, encoder, learned, source_text
from tokenmill import _core
from tokenmill.errors import CorpusError, TokenizerError

GPT2 = _core.patterns()["gpt2"]


def vocabulary_of(merges: list[Pair]) -> dict[bytes, int]:
    tokens = {token: place for place, token in enumerate(BYTES)}
    for left, right in merges:
        tokens.setdefault(left + right, len(tokens))
    return tokens


@pytest.fixture(scope="module")
def real() -> tuple[dict[bytes, int], list[Pair]]:
    counter = _core.Counter(GPT2)
    counter.update(pa.array(source_text()))
    table = pa.Table.from_batches(iter(counter.drain, None))
    counts = dict(zip(table["pretoken"].to_pylist(), table["count"].to_pylist(), strict=True))
    merges, _ = learned(counts, 1500)
    return vocabulary_of(merges), merges


@settings(max_examples=300, deadline=None)
@given(
    counts=st.dictionaries(st.text(alphabet="aab", min_size=1, max_size=10), st.integers(1, 5), min_size=1, max_size=6),
    texts=st.lists(st.text(alphabet="aabc", max_size=90), max_size=4),
)
def test_tokens_are_those_of_the_naive_encoder(counts: dict[str, int], texts: list[str]) -> None:
    merges, _ = learned({text.encode(): count for text, count in counts.items()}, 10)
    tokens = vocabulary_of(merges)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    built = encoder(tokens, merges)
    for text in [*texts, *texts]:  # the second time from the cache
        assert built.encode(text) == [tokens[token] for token in reference.encode(text.encode(), ranks)]


@settings(max_examples=200, deadline=None)
@given(ranks=st.permutations(range(5)), text=st.text(alphabet="ab", max_size=120))
def test_merges_in_any_order_of_ranks_follow_the_naive_encoder(ranks: list[int], text: str) -> None:
    pairs = [(b"a", b"a"), (b"a", b"b"), (b"aa", b"ab"), (b"b", b"b"), (b"ab", b"b")]
    merges = [pairs[place] for place in ranks]
    tokens = vocabulary_of(merges)
    expected = reference.encode(text.encode(), {pair: rank for rank, pair in enumerate(merges)})
    assert encoder(tokens, merges).encode(text) == [tokens[token] for token in expected]


def judge_of(tokens: dict[bytes, int], merges: list[Pair], *, use_regex: bool) -> Tokenizer:
    characters = dict(zip(ORDER, [chr(b) for b in ORDER[:188]] + [chr(256 + i) for i in range(68)], strict=True))

    def shown(token: bytes) -> str:
        return "".join(characters[byte] for byte in token)

    judge = Tokenizer(
        models.BPE({shown(token): id for token, id in tokens.items()}, [(shown(a), shown(b)) for a, b in merges])
    )
    judge.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return judge


def test_ids_of_source_text_are_those_of_tokenizers(real: tuple[dict[bytes, int], list[Pair]]) -> None:
    judge, built = judge_of(*real, use_regex=True), encoder(*real, GPT2)
    texts = [text[:60_000] for text in source_text()[-12:]] + ["naïve 中文 😀 e\u0301", ""]
    assert built.encode_batch(pa.array(texts), 2).to_pylist() == [judge.encode(text).ids for text in texts]


def test_ids_of_long_pretokens_which_are_merged_in_parts_are_those_of_tokenizers(
    real: tuple[dict[bytes, int], list[Pair]],
) -> None:
    judge, built = judge_of(*real, use_regex=False), encoder(*real)
    chosen = random.Random(0)
    fibonacci, longer = "e", "er"
    while len(fibonacci) < 100_000:
        fibonacci, longer = longer, longer + fibonacci
    texts = [
        "".join(source_text())[:300_000],
        "".join("".join(source_text()).split())[:100_000],
        *("".join(chosen.choices(alphabet, k=100_000)) for alphabet in ["er", "selfn", "0123456789", "中文 e"]),
        *(unit * (100_000 // len(unit)) for unit in ["e", "se", "return self.value", "x"]),
        fibonacci,
    ]
    assert built.encode_batch(pa.array(texts), 2).to_pylist() == [judge.encode(text).ids for text in texts]


@pytest.mark.slow
def test_ids_of_chinese_text_are_those_of_tokenizers() -> None:
    chosen = random.Random(1)
    characters = [chr(0x4E00 + 7 * i) for i in range(200)]
    words = [
        "".join(chosen.choices(characters[: chosen.choice([20, 200])], k=chosen.randint(1, 6))) for _ in range(4000)
    ]
    words += ["的x", " 的", "x的", "是。", "、的"] * 300
    merges, _ = learned({word.encode(): words.count(word) for word in words}, 900)
    tokens = vocabulary_of(merges)
    assert sum(len(token) == 3 and token[0] >= 0xE0 for token in tokens) > 100
    assert sum(len(token) > 3 for token in tokens) > 100
    texts = ["".join(chosen.choices([*words, *"的 x、。é"], k=n)) for n in [1, 2, 3, 5, 10, 40, 400, 10_000] * 20]
    for steps in ([], GPT2):
        judge, built = judge_of(tokens, merges, use_regex=bool(steps)), encoder(tokens, merges, steps)
        assert built.encode_batch(pa.array(texts), 2).to_pylist() == [judge.encode(text).ids for text in texts]


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k"])
def test_ids_of_source_text_are_those_of_tiktoken(name: str, real: tuple[dict[bytes, int], list[Pair]]) -> None:
    tokens, merges = real
    kept = {token: rank for rank, token in enumerate([*BYTES, *dict.fromkeys(a + b for a, b in merges)])}
    steps = _core.patterns()[name]
    judge = tiktoken.Encoding("t", pat_str=steps[0], mergeable_ranks=kept, special_tokens={})
    built = encoder(tokens, merges, steps)
    if len(kept) != 256 + len(merges):
        pytest.skip("two merges make one token, which ranks by token cannot say")
    for text in [*source_text()[:6], "it's  IT'S\n\n 1234 中文 \u00a0x"]:
        assert built.encode(text) == judge.encode_ordinary(text)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_every_string_type_gives_large_lists_of_uint32(kind: pa.DataType) -> None:
    built = encoder(vocabulary_of([(b"a", b"b")]), [(b"a", b"b")])
    found = built.encode_batch(pa.array([b"x", b"ab", b""], pa.binary()).cast(kind)[1:], 1)
    assert pa.types.is_large_list(found.type) and found.type.value_type == pa.uint32()
    assert found.to_pylist() == [[256], []]


def test_lists_and_arrow_arrays_of_any_chunks_give_the_same_ids(real: tuple[dict[bytes, int], list[Pair]]) -> None:
    built = encoder(*real, GPT2)
    texts = ["the cat", "", "naïve 中文", "\U0001f642 it's"]
    expected = [built.encode(text) for text in texts]
    chunks = pa.chunked_array([texts[:1], texts[1:]], pa.string())
    for batch in (texts, [text.encode() for text in texts], pa.array(texts), chunks, pa.array(texts, pa.string_view())):
        assert built.encode_batch(batch, 1).to_pylist() == expected
    assert (
        built.encode_batch([], 1).to_pylist()
        == built.encode_batch(pa.chunked_array([], pa.string()), 1).to_pylist()
        == []
    )


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["a", None], CorpusError, "text 1 is null"),
        (["a", "b\ud800"], CorpusError, r"text 1: .* surrogate at character 1"),
        ([b"a", b"b\xff"], CorpusError, "text 1 is not UTF-8 at byte 1"),
        (["a", b"b"], TypeError, "found bytes"),
        ([b"a", "b"], TypeError, "found str"),
        ([1], TypeError, "found int"),
        (pa.chunked_array([["a"], ["b", None]], pa.string()), CorpusError, "text 2 is null"),
        (pa.array([1]), TypeError, "array of strings"),
    ],
)
def test_what_is_no_text_is_named(texts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        encoder(vocabulary_of([]), []).encode_batch(texts, 1)


def test_invalid_utf8_in_an_arrow_string_array_is_found() -> None:
    forged = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))
    with pytest.raises(CorpusError, match="text 1 is not UTF-8"):
        encoder(vocabulary_of([]), []).encode_batch(forged, 1)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str)
@pytest.mark.parametrize(
    "ends", [(0, 9, 2, 3), (0, -1, 2, 3), (0, 1, 2, 1 << 30)], ids=["falling", "negative", "behind"]
)
def test_an_arrow_array_whose_offsets_lie_is_refused(kind: pa.DataType, ends: tuple[int, ...]) -> None:
    """pyarrow reads a file with such offsets without a word; following them reads memory behind the texts."""
    ends_type = pa.int64() if "large" in str(kind) else pa.int32()
    right, wrong = (pa.array(some, ends_type).buffers()[1].to_pybytes() for some in ((0, 1, 2, 3), ends))
    array = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(right), pa.py_buffer(b"abc")])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("text", kind)])) as file:
        file.write(pa.record_batch([array], names=["text"]))
    texts = pa.ipc.open_file(pa.BufferReader(sink.getvalue().to_pybytes().replace(right, wrong))).read_all()["text"]
    counter = tokenmill.Counter(pattern="gpt2")
    counter.update(["abc"])
    tokenizer = tokenmill.train_vocab(counter, vocab_size=257, pattern="gpt2", special_tokens=[], pair_count_min=1)
    for read in (tokenizer.encode_batch, tokenmill.Counter(pattern="gpt2").update):
        with pytest.raises(CorpusError, match="an Arrow array is broken"):
            read(texts)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str)
def test_a_slice_without_texts_is_no_broken_array(kind: pa.DataType) -> None:
    texts = pa.array(["ab", "c"], kind)
    built = encoder({bytes([byte]): byte for byte in range(256)}, [])
    for some in (texts[1:1], texts[2:], pa.chunked_array([texts[:1], texts[1:1], texts[1:]])):
        assert built.encode_batch(some, 1).to_pylist() == [
            list(one.as_py().encode() if isinstance(one.as_py(), str) else one.as_py()) for one in some
        ]


def test_lists_of_ids_whose_offsets_lie_are_refused() -> None:
    lists = pa.LargeListArray.from_arrays(pa.array([0, 1 << 40, 3]), pa.array([1, 2, 3], pa.uint32()))
    with pytest.raises(CorpusError, match="an Arrow array is broken"):
        encoder({bytes([byte]): byte for byte in range(256)}, []).decode_batch(lists, 1)


def test_the_first_text_that_fails_is_named_whatever_the_number_of_threads() -> None:
    tokens = {token: id for token, id in vocabulary_of([]).items() if token != b"z"}
    built = encoder(tokens, [], GPT2)
    texts = ["ab " * 100_000] * 12
    for bad in (4, 7, 11):
        texts[bad] = "ab z"
    for threads in (1, 2, 5):
        with pytest.raises(TokenizerError, match=r"^text 4: "):
            built.encode_batch(texts, threads)


@pytest.mark.parametrize("bytes_max", [0, 10_000, 1 << 24])
def test_the_cache_changes_no_ids(bytes_max: int, real: tuple[dict[bytes, int], list[Pair]]) -> None:
    texts = [text[:100_000] for text in source_text()[:20]] + ["中文" * 400 + "x" * 300, "naïve " * 99]
    expected = encoder(*real, GPT2).encode_batch(texts, 1).to_pylist()
    built = encoder(*real, GPT2)
    built.limit_cache(bytes_max)
    assert built.encode_batch(texts, 1).to_pylist() == expected
    words = sorted({word for text in texts for word in text.split(" ")} | {"", "中文" * 400})
    built.warm(pa.array([f" {word}".encode() for word in words], pa.binary()))
    assert built.encode_batch(texts, 2).to_pylist() == built.encode_batch(texts, 2).to_pylist() == expected


def test_counts_are_the_numbers_of_ids(real: tuple[dict[bytes, int], list[Pair]]) -> None:
    built = encoder(*real, GPT2)
    texts = [*source_text()[:8], "", "naïve"]
    counts = built.count_tokens(texts, 2)
    assert counts.type == pa.uint64()
    assert counts.to_pylist() == [len(ids) for ids in built.encode_batch(texts, 1).to_pylist()]


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(alphabet="ab<x>é ", max_size=40), max_size=5), end=st.booleans())
def test_starts_are_the_bytes_before_each_token(texts: list[str], end: bool) -> None:
    tokens = vocabulary_of([(b"a", b"b"), (b"ab", b"ab")])
    built = encoder(tokens, [(b"a", b"b"), (b"ab", b"ab")], GPT2, added=[(300, b"<x>", True), (301, b"<end>", False)])
    ids, starts = built.encode_batch_with_starts(texts, 2, 301 if end else None)
    assert ids.to_pylist() == built.encode_batch(texts, 1, 301 if end else None).to_pylist()
    assert starts.type.value_type == pa.uint64()
    for text, own, places in zip(texts, ids.to_pylist(), starts.to_pylist(), strict=True):
        whole = text.encode()
        ends = [*places[1:], len(whole)]
        expected = [b"" if id == 301 else built.decode_bytes([id]) for id in own]
        assert [whole[a:b] for a, b in zip(places, ends, strict=True)] == expected if own else not whole


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(
    ranks=st.permutations(range(5)), pieces=st.lists(st.sampled_from(["ab", "ba", "aab", "bb"]), min_size=9, max_size=9)
)
def test_a_long_pretoken_follows_the_naive_encoder_for_any_order_of_ranks(ranks: list[int], pieces: list[str]) -> None:
    pairs = [(b"a", b"a"), (b"a", b"b"), (b"aa", b"ab"), (b"b", b"b"), (b"ab", b"b")]
    merges = [pairs[place] for place in ranks]
    tokens = vocabulary_of(merges)
    text = "".join(pieces) * 260  # more than the 4096 bytes from which on ranks are swept
    expected = reference.encode(text.encode(), {pair: rank for rank, pair in enumerate(merges)})
    assert encoder(tokens, merges).encode(text) == [tokens[token] for token in expected]


def test_threads_do_not_change_the_ids(real: tuple[dict[bytes, int], list[Pair]]) -> None:
    built = encoder(*real, GPT2)
    texts = pa.array(source_text() * 2)
    one, *more = (pa.array(built.encode_batch(texts, threads)) for threads in (1, 2, 5))
    assert all(ids.equals(one) for ids in more)


def test_a_begin_id_begins_and_an_end_id_ends_every_list() -> None:
    built = encoder(vocabulary_of([]), [], added=[(300, b"<begin>", False), (301, b"<end>", False)])
    texts, a = pa.array(["a", ""]), vocabulary_of([])[b"a"]
    assert built.encode_batch(texts, 1, end_id=301).to_pylist() == [[a, 301], [301]]
    assert built.encode_batch(texts, 1, begin_id=300).to_pylist() == [[300, a], [300]]
    ids, starts = built.encode_batch_with_starts(texts, 1, begin_id=300, end_id=301)
    assert (ids.to_pylist(), starts.to_pylist()) == ([[300, a, 301], [300, 301]], [[0, 0, 1], [0, 0]])


def test_two_megabytes_without_a_space_are_one_pretoken(real: tuple[dict[bytes, int], list[Pair]]) -> None:
    built = encoder(*real)
    text = "return self.value" * 120_000
    assert built.decode_bytes(built.encode(text)) == text.encode()


def test_a_token_that_merges_do_not_rebuild_is_used_only_when_merges_are_ignored() -> None:
    tokens = vocabulary_of([(b"a", b"b")]) | {b"abc": 999}
    bare = [tokens[b"ab"], tokens[b"c"]]
    assert encoder(tokens, [(b"a", b"b")]).encode("abc") == bare
    assert encoder(tokens, [(b"a", b"b")], ignore_merges=True).encode("abc") == [999]


def test_added_tokens_are_found_leftmost_and_longest_first_as_tokenizers_finds_them() -> None:
    tokens = vocabulary_of([])
    added = [(300, b"<a>", True), (301, b"<a><b>", True), (302, b"<c>", False)]
    text = "x<a><b><a>y<c>"
    ids = encoder(tokens, [], added=added).encode(text)
    assert ids[:4] == [tokens[b"x"], 301, 300, tokens[b"y"]]
    assert ids[4:] == [tokens[bytes([byte])] for byte in b"<c>"]
    judge = Tokenizer(models.BPE({chr(i + 97): i for i in range(26)}, []))
    judge.add_tokens([AddedToken("<a>", normalized=False), AddedToken("<a><b>", normalized=False)])
    assert [judge.id_to_token(id) for id in judge.encode("x<a><b><a>y").ids] == ["x", "<a><b>", "<a>", "y"]


def test_all_added_tokens_decode() -> None:
    built = encoder(vocabulary_of([]), [], added=[(300, b"<a>", True), (301, b"\xff<c>", False)])
    assert built.decode_bytes([300, 301]) == b"<a>\xff<c>"


def test_a_byte_without_a_token_is_an_error_that_names_it() -> None:
    tokens = {token: id for token, id in vocabulary_of([]).items() if token != b"z"}
    with pytest.raises(TokenizerError, match=r"(?s)(0x7a|z|122).*3|3.*(0x7a|z|122)"):
        encoder(tokens, []).encode("abcz")


def test_an_unknown_id_is_an_error_that_names_it() -> None:
    built = encoder(vocabulary_of([]), [])
    with pytest.raises(TokenizerError, match="70000"):
        built.decode_bytes([1, 70_000])
    with pytest.raises(TokenizerError, match="list 1: id 70000"):
        built.decode_batch(pa.array([[1], [70_000], [80_000]], pa.list_(pa.uint32())), 1)


def test_ids_near_the_largest_do_not_need_a_table_of_that_length() -> None:
    tokens = vocabulary_of([]) | {b"huge": 2**32 - 2}
    assert encoder(tokens, []).decode_bytes([2**32 - 2]) == b"huge"


def test_integers_that_python_keeps_in_different_ways_are_ids_in_one_list() -> None:
    sizes = [257, 2**30 - 1, 2**30, 2**31, 2**32 - 2]  # of one digit and of two
    built = encoder(vocabulary_of([]) | {f"<{id}>".encode(): id for id in sizes}, [])
    ids = [*sizes, 0, True, 255, *reversed(sizes), 0] * 50
    assert built.decode_bytes(ids) == built.decode_bytes(pa.array(map(int, ids), pa.uint32()))
    for wrong in (-1, -257, 2**32, 2**64 + 5, -(2**30), 2**60 + 1):
        with pytest.raises(OverflowError):
            built.decode_bytes([257, wrong])


def test_tokens_of_any_length_decode() -> None:
    tokens = vocabulary_of([]) | {b"x" * n: 300 + n for n in range(2, 40)}
    built = encoder(tokens, [])
    ids = list(range(302, 340)) * 3
    assert built.decode_bytes(ids) == built.decode_bytes(pa.array(ids, pa.uint32())) == b"x" * sum(range(2, 40)) * 3
    assert built.decode_batch(pa.array([ids, ids[:5]], pa.list_(pa.uint16())), 2)[1].as_py() == b"x" * 20
    many = pa.array([338] * 300_000, pa.uint32())  # more bytes an id than there is room for at first
    assert built.decode_bytes(many) == built.decode(many).encode() == b"x" * 38 * 300_000


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.uint16()), pa.large_list(pa.uint16()), pa.list_(pa.uint32()), pa.large_list(pa.uint32())]
)
def test_lists_of_ids_decode_to_large_binary(kind: pa.DataType) -> None:
    built = encoder(vocabulary_of([(b"a", b"b")]), [(b"a", b"b")])
    ids = vocabulary_of([])
    found = built.decode_batch(pa.array([[9], [256, ids[b"c"]], []], kind)[1:], 2)
    assert found.type == pa.large_binary()
    assert found.to_pylist() == [b"abc", b""]


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(max_size=60), max_size=5))
def test_decoding_gives_the_text_back(texts: list[str]) -> None:
    built = encoder(vocabulary_of([(b"a", b"b")]), [(b"a", b"b")], GPT2)
    array = pa.array(texts, pa.string())
    assert built.decode_batch(built.encode_batch(array, 1), 1).to_pylist() == [text.encode() for text in texts]


@pytest.mark.parametrize(
    ("ids", "tokens"),
    [([1, 1], [b"a", b"b"]), ([1, 2], [b"a", b"a"])],
    ids=["one id, two tokens", "two ids, one token"],
)
def test_a_vocabulary_that_is_not_one_to_one_is_refused(ids: list[int], tokens: list[bytes]) -> None:
    vocabulary = pa.record_batch({"id": pa.array(ids, pa.uint32()), "token": pa.array(tokens, pa.binary())})
    none = pa.array([], pa.uint32())
    merges = pa.record_batch({"left": none, "right": none, "rank": none, "token": none})
    added = pa.record_batch({"id": none, "token": pa.array([], pa.binary()), "in_text": pa.array([], pa.bool_())})
    with pytest.raises(TokenizerError):
        _core.Encoder([], vocabulary, merges, added, False)


@pytest.mark.parametrize("row", [(0, 1, 0, 5000), (5000, 1, 0, 2), (0, 1, 0, 2)])
def test_a_merge_that_does_not_join_its_tokens_is_refused(row: tuple[int, int, int, int]) -> None:
    vocabulary = pa.record_batch({"id": pa.array(range(256), pa.uint32()), "token": pa.array(BYTES, pa.binary())})
    names = ("left", "right", "rank", "token")
    merges = pa.record_batch({name: pa.array([row[i]], pa.uint32()) for i, name in enumerate(names)})
    none = pa.array([], pa.uint32())
    added = pa.record_batch({"id": none, "token": pa.array([], pa.binary()), "in_text": pa.array([], pa.bool_())})
    with pytest.raises(TokenizerError):
        _core.Encoder([], vocabulary, merges, added, False)


def test_a_null_text_is_an_error_that_names_its_row() -> None:
    with pytest.raises(CorpusError, match="1"):
        encoder(vocabulary_of([]), []).encode_batch(pa.array(["a", None], pa.string()), 1)


def test_interrupt_stops_encoding() -> None:
    built = encoder(vocabulary_of([]), [], GPT2)
    _core.interrupt(True)
    try:
        with pytest.raises(KeyboardInterrupt):
            built.encode_batch(pa.array([json.dumps(list(range(60_000)))] * 4), 2)
    finally:
        _core.interrupt(False)


def test_the_oracle_is_short() -> None:
    assert len(Path(reference.__file__).read_text(encoding="utf-8").splitlines()) < 60


def _unaligned(array: pa.Array) -> pa.Array:
    """The same array, its buffers one byte off."""
    buffers = [None if one is None else pa.py_buffer(b"x" + one.to_pybytes()).slice(1) for one in array.buffers()]
    return pa.Array.from_buffers(array.type, len(array), buffers)


def test_arrays_that_are_not_aligned_are_read_all_the_same() -> None:
    texts, numbers = pa.array(["low", "lower", "low"]), pa.array([3, 1, 2], pa.uint64())
    counters = [_core.Counter([]) for _ in range(2)]
    for counter, array in zip(counters, (texts, _unaligned(texts)), strict=True):
        counter.update(array)
    assert counters[0].drain().equals(counters[1].drain())
    built = encoder({bytes([byte]): byte for byte in range(256)}, [])
    assert built.encode_batch(_unaligned(texts), 1).equals(built.encode_batch(texts, 1))
    ids = pa.array([97, 98, 99], pa.uint32())
    assert built.decode_bytes(_unaligned(ids)) == b"abc"
    goal = (256, 9, "count", 1, None, [], None, None, None)
    tokens = [bytes([byte]) for byte in _core.byte_order()]
    words = texts.cast(pa.binary())
    assert _core.train(_unaligned(words), _unaligned(numbers), tokens, *goal) == _core.train(
        words, numbers, tokens, *goal
    )
