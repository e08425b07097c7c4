"""The core's split patterns against the regexes they stand for, as tokenizers and tiktoken run them."""

import functools
import itertools
from pathlib import Path

import pytest
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tokenmill import _core
from tokenmill.errors import PatternError

NAMES = sorted(_core.patterns())
# A letter, a case pair, contractions, a mark, digits of two scripts, all kinds of white space, an emoji, a combined form.
ALPHABET = " \n\r\t\u00a0\u2028ab'sSlLvVeE1２é\u0301ǅ中.,/😀ſ"
TRICKY = [
    "", " ", "  ", "\n", " \n", "\n ", "a  b", "a \n b", "\r\n\r\n x", "it's IT'S we'll WE'LL 'S'", "x\u00a0\u00a0y", "1234567 12",
    "a\n\n\n b\n", "  \n  \n  x", "HelloWORLDHello", "naïve café", "中文字符 123", "...///\n\n/", "\t\tif x:\n",
    "'ſ 'ſt", "e\u0301'll",
]  # fmt: skip


@functools.cache
def judge(name: str) -> pre_tokenizers.PreTokenizer:
    steps = [pre_tokenizers.Split(Regex(step), "isolated") for step in _core.patterns()[name]]
    return pre_tokenizers.Sequence(steps)


def judged(name: str, text: str) -> list[str]:
    return [piece for piece, _ in judge(name).pre_tokenize_str(text)]


@functools.cache
def standard_library_text() -> str:
    paths = sorted(Path(functools.__file__).parent.glob("*.py"))
    return "".join(path.read_text(encoding="utf-8") for path in paths[:60])[:1_000_000]


@pytest.mark.parametrize("name", NAMES)
def test_tricky_texts_are_cut_as_tokenizers_cuts_them(name: str) -> None:
    for text in TRICKY:
        assert _core.split(_core.patterns()[name], text) == judged(name, text), repr(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_short_text_over_white_space_and_a_letter_is_cut_as_tokenizers_cuts_it(name: str) -> None:
    for n_characters in range(1, 6):
        for characters in itertools.product(" \n\ta.", repeat=n_characters):
            text = "".join(characters)
            assert _core.split(_core.patterns()[name], text) == judged(name, text), repr(text)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=400, deadline=None)
@given(text=st.text(alphabet=ALPHABET, max_size=24))
def test_generated_texts_are_cut_as_tokenizers_cuts_them(name: str, text: str) -> None:
    assert _core.split(_core.patterns()[name], text) == judged(name, text)


@pytest.mark.parametrize("name", NAMES)
def test_source_text_is_cut_as_tokenizers_cuts_it(name: str) -> None:
    text = standard_library_text()[:300_000]
    assert _core.split(_core.patterns()[name], text) == judged(name, text)


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k"])
def test_pieces_are_those_of_tiktoken(name: str) -> None:
    # With no merges a token is a byte: tiktoken's pieces show by making each piece of the core a token of its own.
    for text in [*TRICKY, standard_library_text()[:20_000]]:
        pieces = _core.split(_core.patterns()[name], text)
        tokens = {piece.encode() for piece in pieces} - {bytes([byte]) for byte in range(256)}
        ranks = {bytes([byte]): byte for byte in range(256)}
        ranks |= {token: 256 + rank for rank, token in enumerate(sorted(tokens))}
        encoding = tiktoken.Encoding("t", pat_str=_core.patterns()[name][0], mergeable_ranks=ranks, special_tokens={})
        assert encoding.decode_tokens_bytes(encoding.encode_ordinary(text)) == [piece.encode() for piece in pieces]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("character", [" ", "\n", "a", "1", "^", "\t\n", "' "])
def test_a_megabyte_of_one_character_is_cut(name: str, character: str) -> None:
    text = character * (1_000_000 // len(character))
    assert "".join(_core.split(_core.patterns()[name], text)) == text


@pytest.mark.parametrize(
    "step", [r"[ab]+", r"a*", r"zz|\s+(?!\S)|\s+", r"a*b|\s+(?!\S)|\s+", r"(?=a)", r"\d", r"a++b?"]
)
@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="ab z1\n", max_size=16))
def test_any_regex_keeps_gaps_as_pieces(step: str, text: str) -> None:
    split = pre_tokenizers.Split(Regex(step), "isolated")
    assert _core.split([step], text) == [piece for piece, _ in split.pre_tokenize_str(text)]


def test_a_pattern_without_steps_makes_each_text_one_piece() -> None:
    assert _core.split([], "a b") == ["a b"]
    assert _core.split([], "") == []


def test_a_step_sees_only_its_piece() -> None:
    # Within "a  1b" the digit is cut out first; the second space then ends its piece and stays with the first.
    assert _core.split([r"\p{N}", *_core.patterns()["gpt2"]], "a  1b") == ["a", "  ", "1", "b"]


def test_a_regex_that_does_not_compile_is_a_pattern_error() -> None:
    with pytest.raises(PatternError):
        _core.split(["("], "a")


def test_the_judge_is_the_version_that_the_project_pins() -> None:
    assert tokenizers.__version__.startswith("0.2")
