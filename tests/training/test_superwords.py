"""The second phase of superwords gives the merges of a naive trainer over whole documents."""

import json
from collections import Counter as Tally
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tests.builders.killed_training import Deadly, Killed
from tests.reference import Pair, encode, makes_a_token_twice, merged, train
from tokenmill import Counter, Tokenizer, _core, train_vocab
from tokenmill.counts.spill import SCHEMA
from tokenmill.errors import CountsError, ParamsError
from tokenmill.training.bpe import Goal, Running
from tokenmill.training.checkpoint import Checkpoint
from tokenmill.training.superwords import LearnedSuperwords, Room, learn_superwords

RUNNING = Running()
ORDER = bytes(_core.byte_order())
SENTENCES = [
    "By the way, I am a fan of the Milky Way.",
    "by the way: of the people, by the people, for the people",
    "By the way, the way of the people is the way of the sea.  It is!",
    "in 2024 the end of the day was the end of the line...\n\nof the day\r\n",
    "Im Laufe der Zeit, im Laufe des Tages; im  Laufe der Woche",
    "def f(x):\n    return x\n\ndef g(x):\n    return f(x) + 1\n",
]


def counted(texts: Sequence[str], pattern: str) -> pa.Table:
    counter = Counter(pattern)
    counter.update(list(texts))
    return counter.finish()


def pretokens(texts: Sequence[str], pattern: str) -> Tally[bytes]:
    """The pre-tokens of whole documents, as `tokenizers` splits them."""
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(step), "isolated") for step in _core.patterns().get(pattern, [pattern])]
    )
    return Tally(piece.encode() for text in texts for piece, _ in split.pre_tokenize_str(text))


def naive(texts: Sequence[str], n_first: int, n_second: int, words_max: int, pair_count_min: int) -> list[Pair] | None:
    """Both phases over whole documents; every pair is counted again for each merge. None if the first phase makes a token twice."""
    first = train(pretokens(texts, "gpt2"), n_first, ORDER, pair_count_min)
    if makes_a_token_twice(first):
        return None
    ranks = {pair: rank for rank, pair in enumerate(first)}
    ids = {bytes([byte]): place for place, byte in enumerate(ORDER)}
    for pair in first:
        ids[b"".join(pair)] = len(ids)
    counts = pretokens(texts, "superbpe")
    words = {text: encode(text, ranks) for text in counts}
    second: list[Pair] = []
    while len(second) < n_second:
        pairs: Tally[Pair] = Tally()
        for text, word in words.items():
            for pair in pairwise(word):
                pairs[pair] += counts[text]

        def is_allowed(pair: Pair) -> bool:
            token = b"".join(pair)
            return len(token.split()) <= words_max and b": " not in token and token not in ids

        allowed = [pair for pair in pairs if is_allowed(pair) and pairs[pair] >= max(1, pair_count_min)]
        if not allowed:
            break
        best = min(allowed, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        second.append(best)
        ids[b"".join(best)] = len(ids)
        words = {text: merged(word, best) for text, word in words.items()}
    return first + second


def both_phases(
    texts: Sequence[str],
    n_first: int,
    n_second: int,
    goal: Goal,
    running: Running = RUNNING,
    special: Sequence[str] = (),
) -> LearnedSuperwords:
    size = 256 + len(special) + n_first
    base = train_vocab(counted(texts, "gpt2"), size, "gpt2", special, pair_count_min=goal.pair_count_min)
    table = counted(texts, "superbpe")
    return learn_superwords(base, table.to_batches, "superbpe", base.vocab_size + n_second, goal, running)


def merges_of(tokenizer: Tokenizer) -> list[Pair]:
    model = tokenizer.model
    assert model is not None
    return [(model.tokens[one.left], model.tokens[one.right]) for one in model.merges]


def compare(texts: Sequence[str], n_first: int, n_second: int, words_max: int, pair_count_min: int) -> bool:
    """Whether the naive trainer has an answer, which must be equal then."""
    expected = naive(texts, n_first, n_second, words_max, pair_count_min)
    if expected is None:
        return False
    made = both_phases(texts, n_first, n_second, Goal(pair_count_min, words_max=words_max))
    tokenizer = made.learned.tokenizers[0]
    assert merges_of(tokenizer) == expected
    other = tokenizers.Tokenizer.from_str(json.dumps(tokenizer.document))
    ids = [tokenizer.encode(text) for text in texts]
    assert ids == [one.ids for one in other.encode_batch(list(texts), add_special_tokens=False)]
    assert [tokenizer.decode(one) for one in ids] == list(texts)
    assert made.learned.n_text_tokens == sum(map(len, ids))
    assert made.text_bytes == sum(len(text.encode()) for text in texts)
    return True


letters = st.text(alphabet="ab ", max_size=30)
marks = st.text(alphabet="ab:. \n1é", max_size=24)


@settings(deadline=None, max_examples=150)
@given(
    texts=st.lists(letters | marks, min_size=1, max_size=6),
    n_first=st.integers(0, 6),
    n_second=st.integers(0, 12),
    words_max=st.integers(1, 4),
    pair_count_min=st.integers(1, 3),
)
def test_merges_are_those_of_a_naive_trainer(
    texts: list[str], n_first: int, n_second: int, words_max: int, pair_count_min: int
) -> None:
    compare(texts, n_first, n_second, words_max, pair_count_min)


@pytest.mark.parametrize(("n_first", "n_second"), [(10, 60), (40, 200), (100, 20)])
@pytest.mark.parametrize("words_max", [2, 4])
def test_merges_of_sentences_are_those_of_a_naive_trainer(n_first: int, n_second: int, words_max: int) -> None:
    assert compare(SENTENCES * 2, n_first, n_second, words_max, 2)


def test_a_pair_may_be_more_frequent_than_any_pair_that_is_merged_at_the_start() -> None:
    texts = ["a b " * 40, "c d " * 40, "e f", "e f g", "g h", "h e f g h"]
    assert compare(texts, 2, 30, 3, 1)


def test_no_token_has_too_many_words_or_a_colon_and_a_blank() -> None:
    made = both_phases(["of the end: of the end of the end"] * 9, 20, 100, Goal(words_max=3))
    model = made.learned.tokenizers[0].model
    assert model is not None
    assert max(len(token.split()) for token in model.tokens.values()) == 3
    assert not any(b": " in token for token in model.tokens.values())
    assert sum(made.n_by_words.values()) == made.learned.n_merges
    assert made.n_text_tokens_before > made.learned.n_text_tokens


def test_counts_far_beyond_32_bits_and_the_length_of_tokens_are_kept_exactly() -> None:
    words = pa.table({"pretoken": [b" ab", b"ab"], "count": pa.array([5, 5], pa.uint64())}).cast(SCHEMA)
    base = train_vocab(words, 258, "gpt2")
    rows = {"pretoken": [b"ab ab", b"ab ab ab"], "count": [2**40, 2**41]}
    table = pa.table(rows).cast(SCHEMA)
    made = learn_superwords(base, table.to_batches, "superbpe", 259, Goal(words_max=4)).learned
    assert (merges_of(made.tokenizers[0])[-1], made.last_count) == ((b"ab", b" ab"), 2**41 + 2**40)
    short = learn_superwords(base, table.to_batches, "superbpe", 300, Goal(words_max=4, token_bytes_max=5)).learned
    assert short.n_merges == 0


def test_special_tokens_keep_their_ids_and_are_not_made_from_text() -> None:
    made = both_phases(["a b a b a b"] * 3, 2, 20, Goal(words_max=4), special=["<s>", "a b"])
    model = made.learned.tokenizers[0].model
    assert model is not None
    assert [one.id for one in model.added] == [0, 1]
    assert b"a b" not in model.tokens.values()
    assert b" b a" in model.tokens.values()


def test_a_killed_training_resumes_with_the_same_result(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path / "state", every=7)
    seen: list[int] = []

    def learned(running: Running) -> Tokenizer:
        return both_phases(SENTENCES * 3, 60, 90, Goal(words_max=4), running).learned.tokenizers[0]

    expected = learned(Running())
    with pytest.raises(Killed):
        learned(Running(checkpoint=Deadly(kept.directory, kept.every, n_merges=30)))
    assert learned(Running(progress=lambda _, n: seen.append(n), checkpoint=kept)).digest == expected.digest
    assert seen[0] >= 30
    assert not kept.directory.exists()


def test_phrases_that_take_too_much_memory_are_refused() -> None:
    texts = [f"{'ab cd ef gh '[i % 5 :]}{i} of the end" for i in range(200)] * 2
    base = train_vocab(counted(texts, "gpt2"), 280, "gpt2")
    table = counted(texts, "superbpe")
    with pytest.raises(CountsError, match="memory_mb_max"):
        learn_superwords(base, table.to_batches, "superbpe", 400, Goal(words_max=4), room=Room(memory_mb=0))


def test_a_vocabulary_smaller_than_that_of_the_first_phase_is_refused() -> None:
    base = train_vocab(counted(SENTENCES, "gpt2"), 260, "gpt2")
    with pytest.raises(ParamsError, match="vocab_size: found 259"):
        learn_superwords(base, counted(SENTENCES, "superbpe").to_batches, "superbpe", 259, Goal(words_max=2))


def test_a_goal_without_words_is_refused() -> None:
    base = train_vocab(counted(["a b"], "gpt2"), 257, "gpt2")
    with pytest.raises(ParamsError, match="words_max"):
        learn_superwords(base, list, "superbpe", 300, Goal())
