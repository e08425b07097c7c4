"""train_vocab.forbid and protect give the vocabulary of a training that refuses the tokens as they come up."""

import json
import re
from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from tests import reference
from tests.builders.trained import TEXT
from tests.conftest import Project
from tokenmill import Counter, Tokenizer, _core
from tokenmill.training.bpe import Goal, extend, learn


def naive(
    counts: Mapping[bytes, int], n_merges_max: int, forbid: Sequence[str], protect: Sequence[str]
) -> list[reference.Pair]:
    """The merges of a trainer that looks at each token before it makes it."""
    ids = {bytes([byte]): place for place, byte in enumerate(_core.byte_order())}
    words = {text: [bytes([byte]) for byte in text] for text in counts}
    merges: list[reference.Pair] = []
    while len(merges) < n_merges_max:
        pairs: Counted[reference.Pair] = Counted()
        for text, word in words.items():
            for pair in pairwise(word):
                token = b"".join(pair)
                is_found = [re.search(pattern.encode(), token, re.DOTALL) for pattern in forbid]
                is_mixed = [
                    re.search(pattern.encode(), token, re.DOTALL)
                    and not re.fullmatch(pattern.encode(), token, re.DOTALL)
                    for pattern in protect
                ]
                if not any(is_found) and not any(is_mixed):
                    pairs[pair] += counts[text]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        merges.append(best)
        ids.setdefault(b"".join(best), len(ids))
        words = {text: reference.merged(word, best) for text, word in words.items()}
    return merges


@given(
    texts=st.lists(st.text("ab1", min_size=1, max_size=12), min_size=1, max_size=6),
    forbid=st.lists(st.sampled_from(["aa", "^b", "1.|.1", "(.)\\1", "b$", "ab?1", "...", "zz"]), max_size=3),
    protect=st.lists(st.sampled_from(["1{1,2}", "a+", "b|ba", "aa", "ab1?", "1a|b1"]), max_size=2),
    n_merges_max=st.integers(0, 20),
)
def test_the_merges_are_those_of_a_trainer_that_refuses_the_tokens(
    texts: list[str], forbid: list[str], protect: list[str], n_merges_max: int
) -> None:
    counter = Counter(None)
    counter.update(texts)
    table = counter.finish()
    counts = dict(zip(table["pretoken"].to_pylist(), table["count"].to_pylist(), strict=True))
    expected = naive(counts, n_merges_max, forbid, protect)
    assume(not reference.makes_a_token_twice(expected))
    goal = Goal(pair_count_min=1, forbid=forbid, protect=protect)
    found = learn(table, [256 + n_merges_max], None, (), goal).tokenizers[0]
    assert found.model is not None
    assert [(found.token_bytes(merge.left), found.token_bytes(merge.right)) for merge in found.model.merges] == expected


def test_digits_stand_alone_and_other_tokens_take_the_place_of_refused_ones() -> None:
    counter = Counter("gpt2")
    counter.update([*TEXT, "1999 2000 2001 12 " * 99])
    table = counter.finish()
    plain, without = (learn(table, [700], "gpt2", (), Goal(forbid=forbid)) for forbid in ((), ["[0-9].|.[0-9]"]))
    assert plain.n_refused == 0 < without.n_refused
    [one] = without.tokenizers
    assert one.vocab_size == plain.tokenizers[0].vocab_size == 700
    assert not [token for token in one.tokens.values() if len(token) > 1 and re.search(rb"[0-9]", token)]
    assert [one.token_bytes(id) for id in one.encode(" 1999")] == [b" ", b"1", b"9", b"9", b"9"]


def test_protected_digits_group_by_three_at_most_and_apart_from_everything_else() -> None:
    counter = Counter(None)
    counter.update(["in 1999 and 2000, A4 "] * 9)
    table = counter.finish()
    [plain], [apart] = (
        learn(table, [300], None, (), Goal(protect=protect)).tokenizers for protect in ((), ["[0-9]{1,3}"])
    )
    with_digits = [
        {token for token in one.tokens.values() if len(token) > 1 and re.search(rb"[0-9]", token)}
        for one in (plain, apart)
    ]
    assert any(re.search(rb"[^0-9]", token) for token in with_digits[0])
    assert with_digits[1] and all(re.fullmatch(rb"[0-9]{2,3}", token) for token in with_digits[1])


def test_smaller_sizes_and_new_tokens_of_an_extension_are_held_to_it() -> None:
    counter = Counter("gpt2")
    counter.update(TEXT)
    table = counter.finish()
    large, small = learn(table, [600, 300], "gpt2", (), Goal(forbid=["[ (]{2}"])).tokenizers
    assert [small.token_bytes(id) for id in range(300)] == [large.token_bytes(id) for id in range(300)]
    old = learn(table, [300], "gpt2", (), Goal()).tokenizers[0]
    new = extend(old, table, 400, Goal(forbid=["[a-z]$"])).tokenizers[0]
    assert [new.token_bytes(id) for id in range(300)] == [old.token_bytes(id) for id in range(300)]
    assert new.vocab_size == 400
    assert not [id for id in range(300, 400) if re.search(rb"[a-z]$", new.token_bytes(id))]


def test_a_build_says_how_many_tokens_were_refused(project: Project) -> None:
    project.set(train_vocab__forbid=["[aeiou]."])
    project.build("--only", "count")
    done = project.build("--only", "train-vocab")
    folder = project.root / "data/tokenizer"
    n_refused = json.loads((folder / "training.json").read_text(encoding="utf-8"))["n_refused"]
    assert n_refused and f"train_vocab.forbid refused {n_refused:,} tokens" in done.stderr
    of_refusal = f"is allowed by train_vocab.forbid, which refused {n_refused:,} tokens"
    assert of_refusal in done.stderr
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert of_refusal in card and '| forbid | `` ["[aeiou]."] `` |' in card
    tokens = Tokenizer.load(folder).tokens.values()
    assert not [token for token in tokens if re.search(rb"[aeiou].", token) and token != b"<|endoftext|>"]
    project.set(train_vocab__forbid=["(a"], train_vocab__protect=["[0-9]*"])
    refused = project.cli("build")
    assert "found '(a', which is no regex of Python's re" in refused.stderr
    assert "found '[0-9]*', which also matches an empty text" in refused.stderr
