"""A user's own regex splits as tiktoken's engine splits, and as tokenizers does if a tokenizer.json can express it."""

import collections
import random
from pathlib import Path

import pytest
import tiktoken
import tiktoken.load
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tests.builders.teams import build
from tests.conftest import Project
from tokenmill import Counter, Tokenizer, _core, train_vocab
from tokenmill.counts.table import read_counts
from tokenmill.errors import PatternError
from tokenmill.pretokenizers.patterns import first_difference, steps_of

VOYAGE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
ALPHABET = "  \n\r\tabAB1'.sé中١ſ"
BYTES = {bytes([byte]): byte for byte in range(256)}

# The parts of published patterns, each with one quantifier or none; one more behind it repeats it, is an error, or is text.
PARTS = [r"'(?i:[sdmt]|ll|ve|re)", r"[^\r\n\p{L}\p{N}]", r"\p{L}", r"\p{N}", " ", r"[^\s\p{L}\p{N}]", r"[\r\n]", r"\s",
         r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", "(?:a|ab)", "[A-Za-z]"]  # fmt: skip
ENDINGS = ["", r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s", r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s", r"|\s+\z|[\s\S]"]
quantifiers = st.builds("".join, st.tuples(st.sampled_from("?*+"), st.sampled_from(["", "?", "+"]))) | st.sampled_from(
    ["", "", "{1,3}", "{2}", "{1,}", "{0,2}", "{1,3}+", "{1,2}?", "?*", "+{2}", "*+?", "??+"]
)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    branches = []
    for _ in range(draw(st.integers(1, 3))):
        # No part twice: tiktoken 0.14's engine takes x+y?x+ for x+(?:yx+)?.
        parts = draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=3, unique=True))
        branches.append("".join(draw(st.sampled_from(["{}{}", "(?:{}{})", "(?:{}{})?", "(?:{}{})+"])).format(
            part, draw(quantifiers)) for part in parts))  # fmt: skip
    return "|".join(branches) + draw(st.sampled_from(ENDINGS))


def pieces_of_tiktoken(pattern: str, texts: list[str]) -> list[list[str]]:
    """The matches of the pattern, without the empty ones: every part of a text is a token, so each match is one."""
    parts = {text[i:j].encode() for text in texts for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    ranks = BYTES | {b"": 256} | {part: 257 + rank for rank, part in enumerate(sorted(parts - BYTES.keys()))}
    encoding = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    found = [encoding.decode_tokens_bytes(encoding.encode_ordinary(text)) for text in texts]
    return [[piece.decode() for piece in pieces if piece] for pieces in found]


def pieces_of_tokenizers(steps: tuple[str, ...], texts: list[str]) -> list[list[str]]:
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(step), "isolated") for step in steps])
    return [[piece for piece, _ in split.pre_tokenize_str(text)] for text in texts]


def random_texts(n_texts: int) -> list[str]:
    chance = random.Random(7)
    return ["".join(chance.choices(ALPHABET, k=chance.randint(1, 10))) for _ in range(n_texts)]


@pytest.mark.slow
@settings(max_examples=800)
@given(pattern=patterns(), texts=st.lists(st.text(alphabet=ALPHABET, min_size=1, max_size=8), min_size=1, max_size=8))
def test_a_regex_means_what_it_means_to_tiktoken_and_to_tokenizers_or_is_not_given_to_them(
    pattern: str, texts: list[str]
) -> None:
    try:
        steps = steps_of(pattern)
    except PatternError:
        with pytest.raises(ValueError):
            tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=BYTES, special_tokens={})
        return
    ours = [_core.split(steps, text) for text in texts]
    for pieces, matches in zip(ours, pieces_of_tiktoken(pattern, texts), strict=True):
        rest = iter(pieces)  # tiktoken leaves out what no match covers
        assert all(match in rest for match in matches), (pieces, matches)
    if first_difference(steps) is None:
        assert ours == pieces_of_tokenizers(steps, texts)


@pytest.mark.parametrize(
    ("pattern", "text", "pieces"),
    [
        (r"[^\r\n\p{L}\p{N}]?+\p{L}++|\s+(?!\S)|\s", "  h", [" ", " h"]),
        (r"a?+a|[\s\S]", "aab", ["aa", "b"]),
        (r"a?+a|[\s\S]", "ab", ["a", "b"]),  # the optional takes the a and keeps it; the other branch matches
        (r"a++a|b", "aab", ["aa", "b"]),  # no match: a gap
        (r"a+b?a+|[\s\S]", "aba", ["aba"]),
        (r"a+b?a+|b", "ab", ["a", "b"]),  # one a is no match
        (r"a+b??a*(?=\S)|[\s\S]", "abc", ["a", "b", "c"]),
    ],
)
def test_a_possessive_quantifier_gives_nothing_back(pattern: str, text: str, pieces: list[str]) -> None:
    assert _core.split(steps_of(pattern), text) == pieces
    assert pieces_of_tokenizers(steps_of(pattern), [text]) == [pieces]


@pytest.mark.parametrize("pattern", ["a+*", "a??+?", "a++?", "(?:a)***"])
def test_a_quantifier_behind_a_quantifier_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="does not compile"):
        Counter(pattern=pattern)


@pytest.mark.parametrize("pattern", ["a?{2}", "a+{1,}|b", "a{1,3}+", "a{2}{2}", r"\w+$"])
def test_what_tokenizers_would_read_otherwise_is_not_saved(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a.tiktoken").write_bytes(b"YQ== 0\nYg== 1\n")
    with pytest.raises(PatternError, match="does not mean the same"):
        Tokenizer.load(tmp_path / "a.tiktoken", pattern=pattern).save(tmp_path / "saved")


def test_ends_of_the_text_are_saved_as_both_read_them() -> None:
    assert steps_of(r"^a|[$^]\$|b$") == (r"\Aa|[$^]\$|b\z",)
    assert steps_of(r"(?m)^a|b$") == (r"(?m)^a|b$",)


@pytest.mark.slow
def test_a_published_pattern_with_possessive_quantifiers_cuts_as_tiktoken_and_tokenizers_cut(tmp_path: Path) -> None:
    texts = random_texts(5_000)
    pieces = pieces_of_tiktoken(VOYAGE, texts)
    assert [_core.split([VOYAGE], text) for text in texts] == pieces
    counter = Counter(pattern=VOYAGE)
    counter.update(texts)
    counts = counter.finish()
    expected = collections.Counter(piece.encode() for text in pieces for piece in text)
    assert dict(zip(*counts.to_pydict().values(), strict=True)) == expected

    train_vocab(counts, vocab_size=400, pattern=VOYAGE).save(tmp_path / "trained")
    file = tmp_path / "trained/vocab.tiktoken"
    ranks = tiktoken.load.load_tiktoken_bpe(str(file))
    judge = tiktoken.Encoding("voyage", pat_str=VOYAGE, mergeable_ranks=ranks, special_tokens={})
    tokenizer = Tokenizer.load(file, pattern=VOYAGE)
    tokenizer.save(tmp_path / "saved")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "saved/tokenizer.json"))
    loaded = Tokenizer.load(tmp_path / "saved")
    assert (loaded.engine_reason, loaded.digest) == (None, tokenizer.digest)
    ids = judge.encode_ordinary_batch(texts)
    assert tokenizer.encode_batch(texts).to_pylist() == loaded.encode_batch(texts).to_pylist() == ids
    assert [encoding.ids for encoding in peer.encode_batch(texts)] == ids


def test_a_build_counts_by_the_regex_of_its_params(project: Project) -> None:
    texts = random_texts(1_000)
    for shard in (project.root / "data/raw").iterdir():
        shard.unlink()
    project.write("a.jsonl", texts)
    project.set(count__pattern=VOYAGE)
    build(project, "--only", "count")
    counts = read_counts(project.root / "data/counts/counts.parquet").to_pydict()
    expected = collections.Counter(piece.encode() for text in pieces_of_tiktoken(VOYAGE, texts) for piece in text)
    assert dict(zip(*counts.values(), strict=True)) == expected
