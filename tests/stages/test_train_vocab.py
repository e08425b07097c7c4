"""Training gives the merges and ids of `tokenizers`' BpeTrainer."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from tests.builders.killed_training import Deadly, Killed
from tests.builders.trained import END, TEXT, trained
from tests.conftest import Project
from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.errors import CountsError, ParamsError, PatternError
from tokenmill.tokenizer.model import characters_of
from tokenmill.training.bpe import Goal, Running, changed_documents, extend, learn
from tokenmill.training.checkpoint import Checkpoint, key_of


def counted(texts: Sequence[str]) -> pa.Table:
    counter = Counter("gpt2")
    counter.update(texts)
    return counter.finish()


def judge(texts: Sequence[str], vocab_size: int, **settings: Any) -> dict[str, object]:
    """model.vocab and model.merges as BpeTrainer makes them."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        **settings,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model: dict[str, object] = json.loads(tokenizer.to_str())["model"]
    return model


def assert_equal(tokenizer: Tokenizer, model: dict[str, object]) -> None:
    assert tokenizer._model is not None
    text = {id: characters_of(token) for id, token in tokenizer._model.tokens.items()}
    text |= {id: special for special, id in tokenizer.special_tokens.items()}
    assert [[text[one.left], text[one.right]] for one in tokenizer._model.merges] == model["merges"]
    assert {token: id for id, token in text.items()} == model["vocab"]


@pytest.mark.parametrize("vocab_size", [256, 257, 300, 1000, 3000])
def test_merges_and_ids_are_those_of_tokenizers(vocab_size: int) -> None:
    tokenizer = trained(TEXT, vocab_size=vocab_size, pair_count_min=2)
    assert_equal(tokenizer, judge(TEXT, vocab_size, min_frequency=2))
    assert tokenizer.vocab_size == vocab_size


def test_special_tokens_come_first_in_the_order_given() -> None:
    special = [END, "<|b|>", "<|a|>", "ﬁ special"]
    tokenizer = trained(TEXT, vocab_size=800, special_tokens=special)
    assert_equal(tokenizer, judge(TEXT, 800, special_tokens=special, min_frequency=2))
    assert tokenizer.special_tokens == {text: id for id, text in enumerate(special)}


@pytest.mark.parametrize("token_bytes_max", [2, 3, 5])
def test_token_bytes_max_is_max_token_length(token_bytes_max: int) -> None:
    tokenizer = trained(TEXT, vocab_size=900, token_bytes_max=token_bytes_max)
    assert_equal(tokenizer, judge(TEXT, 900, max_token_length=token_bytes_max, min_frequency=2))
    lengths = {len(tokenizer.token_bytes(id)) for id in range(tokenizer.vocab_size)}
    assert max(lengths) == max(token_bytes_max - 1, 2)


@settings(max_examples=40)
@given(st.lists(st.text("ab \nä", max_size=30), max_size=8), st.integers(1, 3), st.integers(256, 300))
def test_ties_and_repeats_are_merged_as_tokenizers_does(texts: list[str], count_min: int, vocab_size: int) -> None:
    tokenizer = trained(texts, vocab_size=vocab_size, pair_count_min=count_min)
    assert_equal(tokenizer, judge(texts, vocab_size, min_frequency=count_min))


def test_a_small_corpus_stops_early() -> None:
    tokenizer = trained(["low low lower"], vocab_size=5000)
    assert tokenizer.vocab_size == 256 + 3
    assert tokenizer.n_merges == 3


def test_threads_make_no_difference() -> None:
    assert len({trained(TEXT, vocab_size=700, threads=threads).digest for threads in (1, 2, 3)}) == 1


def test_text_never_learns_a_special_token() -> None:
    texts = ["hello hello hello Ġworld"] * 9
    tokenizer = trained(texts, vocab_size=300, special_tokens=["hello", "Ġhel"])
    for text in ("hello", " hello", "hellohello"):
        assert not set(tokenizer.encode(text)) & set(tokenizer.special_tokens.values())
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_progress_ends_with_all_tokens() -> None:
    seen: list[tuple[int, int]] = []
    tokenizer = trained(TEXT, vocab_size=400, progress=lambda *now: seen.append(now))
    assert seen[-1] == (400 - 256, tokenizer.n_merges)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"vocab_size": 256, "special_tokens": [END]},
            r"allowed: a whole number, 257 \(256 bytes \+ 1 special token\)",
        ),
        ({"vocab_size": 2**32}, "vocab_size"),
        ({"special_tokens": END}, "expected a list"),
        ({"special_tokens": [""]}, "not empty"),
        ({"special_tokens": [END, END]}, "every token once"),
        ({"special_tokens": ["\ud800"]}, "special_tokens"),
        ({"special_tokens": ["b"]}, "how tokenizer.json writes a byte"),
        ({"special_tokens": ["Ġ"]}, "how tokenizer.json writes a byte"),
        ({"pair_count_min": 0}, "pair_count_min"),
        ({"token_bytes_max": 1}, "token_bytes_max"),
        ({"pair_count_min": 2.5}, "pair_count_min: found 2.5; allowed: a whole number, 1 or more"),
        ({"pad_vocab_to": 10**10}, "pad_vocab_to: found 10000000000; allowed: a whole number, 1 to 65536"),
        ({"vocab_size": "270"}, "vocab_size: found '270'; allowed: a whole number"),
    ],
)
def test_a_wrong_parameter_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        trained(["a"], **{"vocab_size": 300, **wrong})


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{N}{1,3}+|\s+",
        r"\s+?$+|\S+",
        r"(?m)^\s+|\S+",
        r"\w+|\W+",
        r"[[:alpha:]]+",
        r"a{2,1}",
        "(?i:ss)|s",
        "(?i)ß|s",
    ],
)
def test_a_pattern_that_tokenizers_reads_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="does not mean the same"):
        trained(["a b"], pattern, vocab_size=300)


def test_a_table_that_holds_no_counts_is_refused() -> None:
    counter = Counter("gpt2")
    counter.update(["a"])
    with pytest.raises(CountsError, match="expected"):
        train_vocab(counter.finish().rename_columns(["word", "count"]), vocab_size=300, pattern="gpt2")


@pytest.mark.parametrize("vocab_size", [257, 300, 411])
def test_a_smaller_vocabulary_of_one_run_is_that_of_a_run_of_its_own(vocab_size: int) -> None:
    counts = counted(TEXT)
    goal = Goal(pair_count_min=2)
    both = learn(counts, [600, vocab_size], "gpt2", [END], goal)
    alone = train_vocab(counts, vocab_size, "gpt2", [END])
    assert [one.vocab_size for one in both.tokenizers] == [600, vocab_size]
    assert both.tokenizers[1].digest == alone.digest


def test_the_numbers_of_a_run_are_told() -> None:
    done = learn(counted(["low low lower lowest"]), [300], "gpt2", [], Goal(pair_count_min=2))
    assert (done.n_merges, done.last_count) == (4, 2)
    assert done.n_text_tokens == sum(
        len(done.tokenizers[0].encode(word)) for word in ["low", " low", " lower", " lowest"]
    )


def test_a_vocabulary_is_padded_to_a_multiple_with_reserved_tokens() -> None:
    tokenizer = trained(TEXT, vocab_size=300, special_tokens=[END], pad_vocab_to=128)
    assert tokenizer.vocab_size == 384
    assert tokenizer.special_tokens["<|reserved_83|>"] == 383
    assert tokenizer.encode("<|reserved_0|>") == trained(TEXT, vocab_size=300, special_tokens=[END]).encode(
        "<|reserved_0|>"
    )
    assert trained(TEXT, vocab_size=384, pad_vocab_to=128).vocab_size == 384


def test_a_reserved_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ParamsError, match="reserved_0"):
        trained(TEXT, vocab_size=300, special_tokens=["<|reserved_0|>"], pad_vocab_to=128)


@pytest.mark.parametrize("score", ["wordpiece", "bytes_saved"])
def test_another_score_gives_another_vocabulary(score: str) -> None:
    assert trained(TEXT, vocab_size=400, score=score).digest != trained(TEXT, vocab_size=400).digest


def test_an_extended_tokenizer_keeps_ids_and_merges_and_learns_from_new_text() -> None:
    old = trained(TEXT[:2], vocab_size=400, special_tokens=[END])
    new_text = ["Ω-Wörter wörtlich, Wörter überall: Wörter, Märchen und Größen!"] * 3
    new = extend(old, counted(new_text), 420, Goal(pair_count_min=2)).tokenizers[0]
    assert new.vocab_size == 420
    assert old.model is not None
    assert new.model is not None
    assert [new.token_bytes(id) for id in range(400)] == [old.token_bytes(id) for id in range(400)]
    assert list(new.model.merges[: len(old.model.merges)]) == list(old.model.merges)
    assert " Wörter".encode() in {new.token_bytes(id) for id in range(400, 420)}
    assert len({new.token_bytes(id) for id in range(420)}) == 420
    assert new.decode(new.encode(new_text[0])) == new_text[0]
    assert len(new.encode(new_text[0])) < len(old.encode(new_text[0]))
    assert changed_documents(old, new, [*new_text, "", "x = 1"]) == 3


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.text("ab ", min_size=1, max_size=12), min_size=1, max_size=5),
    more=st.lists(st.text("abc ", min_size=1, max_size=12), min_size=1, max_size=5),
)
def test_what_an_extension_counts_on_is_what_the_new_tokenizer_gives(texts: list[str], more: list[str]) -> None:
    old = trained(texts, vocab_size=260)
    done = extend(old, counted(more), 266, Goal(pair_count_min=1))
    counts = counted(more)
    lengths = [len(done.tokenizers[0].encode(word.as_py().decode())) for word in counts["pretoken"]]
    assert done.n_text_tokens == sum(n * count.as_py() for n, count in zip(lengths, counts["count"], strict=True))


@pytest.mark.parametrize(
    "settings",
    [{}, {"threads": 3}, {"memory_mb_max": 1}],
    ids=["held", "threads", "spilled"],
)
def test_a_counter_gives_the_tokenizers_that_its_table_gives_and_keeps_its_counts(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    texts = [*TEXT, " ".join(map(str, range(30_000)))]
    one, other = (Counter("gpt2", **settings, spill_directory=tmp_path) for _ in range(2))
    one.update(texts)
    other.update(texts)
    assert (one.n_runs > 0) == ("memory_mb_max" in settings)
    assert train_vocab(one, 900) == train_vocab(one, 900, "gpt2") == train_vocab(other.table(), 900, "gpt2")
    for counter in one, other:
        counter.update(TEXT)
    assert one.table() == one.finish() == other.finish()
    assert one.finish().num_rows == 0
    assert not list(tmp_path.iterdir())


def test_fewer_tokens_than_asked_are_a_warning() -> None:
    counter = Counter("gpt2")
    counter.update(["low low"])
    with pytest.warns(UserWarning, match="asked for 300; learned 258, as no pair is left"):
        train_vocab(counter, 300)


@pytest.mark.parametrize("memory_mb_max", [1, 1024], ids=["spilled", "held"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"score": "x"}, {"threads": 0}, {"vocab_size": 3}, {"pattern": "("}, {"pair_count_min": 0}, {"pattern": "cl100k"},
        {"pad_vocab_to": 1.5},
        {"special_tokens": ["<|reserved_0|>"], "pad_vocab_to": 64},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_setting_leaves_the_counter_as_it_was(wrong: dict[str, Any], memory_mb_max: int) -> None:
    counter = Counter("gpt2", memory_mb_max=memory_mb_max)
    counter.update([" ".join(map(str, range(30_000)))])
    assert (counter.n_runs > 0) == (memory_mb_max == 1)
    with pytest.raises((ParamsError, PatternError, ValueError)):
        train_vocab(counter, **({"vocab_size": 300, "pattern": "gpt2"} | wrong))
    assert counter.finish().num_rows == 30_000


def test_packed_merges_are_a_sequence() -> None:
    model = trained(TEXT, vocab_size=300).model
    assert model
    merges = list(model.merges)
    assert len(model.merges) == len(merges) == 44
    assert [model.merges[i] for i in (0, 7, -1)] == [merges[0], merges[7], merges[-1]]
    assert list(model.merges[5:20:3]) == merges[5:20:3]
    with pytest.raises(IndexError):
        model.merges[44]


def test_a_killed_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    counts = counted(TEXT)
    expected = train_vocab(counts, 900, "gpt2")
    kept = Checkpoint(tmp_path / "state", every=100)
    seen: list[int] = []

    with pytest.raises(Killed):
        learn(counts, [900], "gpt2", [], Goal(), Running(checkpoint=Deadly(kept.directory, kept.every, n_merges=300)))
    done = learn(counts, [900], "gpt2", [], Goal(), Running(progress=lambda _, n: seen.append(n), checkpoint=kept))
    assert done.tokenizers[0].digest == expected.digest
    assert seen[0] >= 300
    assert not kept.directory.exists()


def test_a_checkpoint_of_other_counts_or_settings_is_not_used(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path / "state", every=100)
    words = pa.table({"ids": pa.array([[1, 2]], pa.large_list(pa.uint32())), "count": pa.array([1], pa.uint64())})
    kept.save("other", words, b"")
    assert learn(counted(TEXT), [400], "gpt2", [], Goal(), Running(checkpoint=kept)).tokenizers[0].vocab_size == 400


def test_the_key_of_a_checkpoint_is_that_of_the_rows_however_chunked() -> None:
    counts = counted(TEXT)
    halves = pa.concat_tables([counts.slice(0, 100), counts.slice(100)])
    assert key_of(halves, 1) == key_of(counts, 1) != key_of(counts, 2)
    assert len({key_of(counts, 1), key_of(counts.slice(1), 1), key_of(counts.slice(0, 100), 1)}) == 3


def test_the_key_of_a_checkpoint_is_that_of_the_merges_however_kept(tmp_path: Path) -> None:
    counts = counted(TEXT)
    learned = train_vocab(counts, pattern="gpt2", vocab_size=300)
    learned.save(tmp_path)
    read = Tokenizer.load(tmp_path)
    assert key_of(counts, learned._model.merges) == key_of(counts, read._model.merges)
    assert key_of(counts, learned._model.merges) != key_of(counts, read._model.merges[1:])


@pytest.mark.slow
def test_the_progress_ends_at_the_tokens_that_the_table_has(project: Project) -> None:
    script = """
from tokenmill.console import console
from tokenmill.cli.main import main
assert main(["build"]) == 0
[now] = [one for one in console.shown if one.stage == "train-vocab"]
print("told:", now)
"""
    done = project.run(sys.executable, "-c", script)
    assert "told: train-vocab: 100%, 272 of 272 tokens, in 0:0" in done.stdout, done.stderr


@pytest.mark.slow
def test_transformers_has_the_special_tokens_that_params_name(project: Project) -> None:
    from transformers import AutoTokenizer

    specials = [END, "<|bos|>", "<|pad|>", "<|unk|>"]
    named = {"bos_token": "<|bos|>", "pad_token": "<|pad|>", "unk_token": "<|unk|>", "model_max_length": 77}
    project.set(train_vocab__special_tokens=specials, **{f"train_vocab__{key}": value for key, value in named.items()})
    project.build()
    peer = AutoTokenizer.from_pretrained(project.root / "data/tokenizer")
    assert {key: getattr(peer, key) for key in named} == named
    assert (peer.eos_token, peer.eos_token_id, peer.pad_token_id) == (END, 0, 2)
    assert peer(["a", "aaa bbb"], padding=True)["input_ids"][0][-1] == 2
    project.set(train_vocab__pad_token="<pad>")
    done = project.cli("build")
    assert done.returncode == 2
    assert "train_vocab.pad_token: found '<pad>'; allowed: null or one of train_vocab.special_tokens" in done.stderr
