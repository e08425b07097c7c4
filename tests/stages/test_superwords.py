"""count.superwords counts sentences, and train_vocab.superwords learns tokens of several words from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders.teams import cli
from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.counts.table import read_counts

TEXTS = ["by the way of the people", "the way of the sea, by the sea: of the sea", "by the way of the sea."]


def made(tmp_path: Path, superwords: str = "{transition: 0.5, words_max: 3}", pattern: str = "superbpe") -> Project:
    assert cli(Project(tmp_path), "init", "my-tokens").returncode == 0
    project = Project(tmp_path / "my-tokens")
    for name, texts in (("one", TEXTS[:2]), ("two", TEXTS[2:])):
        (project.root / "data/raw" / name).mkdir(parents=True)
        lines = [json.dumps({"id": f"{name}{i}", "text": text}) for i, text in enumerate(texts)]
        (project.root / "data/raw" / name / "0.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    project.set(run__engine="inline", train_vocab__vocab_size=277)
    project.set_yaml(count__superwords=pattern, train_vocab__superwords=superwords)
    return project


def training_of(project: Project) -> Any:
    return json.loads((project.root / "data/tokenizer/training.json").read_text(encoding="utf-8"))


def test_a_build_learns_tokens_of_several_words_and_its_dataset_is_right(tmp_path: Path) -> None:
    project = made(tmp_path)
    done = cli(project, "build")
    assert done.returncode == 0, done.stderr
    counts = read_counts(project.root / "data/counts/superwords.parquet").to_pydict()
    assert dict(zip(counts["pretoken"], counts["count"], strict=True)) == {text.encode(): 1 for text in TEXTS}
    training = training_of(project)
    assert training["superwords"]["n_tokens_before"] == 267
    n_second = sum(training["superwords"]["n_tokens_by_words"].values())
    assert n_second > 0
    assert training["n_text_tokens"] < training["superwords"]["n_text_tokens_before"]
    assert f"of the {n_second} tokens of the second phase have several words (" in done.stderr
    assert "WARNING: no token has several words" not in done.stderr
    tokenizer = Tokenizer.load(project.root / "data/tokenizer")
    assert (tokenizer.pattern, tokenizer.vocab_size) == ("superbpe", 267 + n_second)
    assert training["n_text_tokens"] == sum(len(tokenizer.encode(text)) for text in TEXTS)
    assert training["text_bytes"] == sum(map(len, TEXTS))
    card = json.loads((project.root / "data/tokenizer/card.json").read_text(encoding="utf-8"))
    assert card["training"]["n_tokens"] == training["n_text_tokens"]
    learned_with = card["training"]["learned_with"]
    by_words = training["superwords"]["n_tokens_by_words"]
    assert learned_with["superwords"] == {"transition": 0.5, "words_max": 3, "n_tokens_by_words": by_words}
    for page in ("data/tokenizer/README.md", "data/report/report.html"):
        assert "transition 0.5, words_max 3" in (project.root / page).read_text(encoding="utf-8")
    assert cli(project, "verify", "data/tokens").returncode == 0
    assert json.loads(cli(project, "plan", "--json").stdout)["result"]["notes"] == []
    project.set(train_vocab__vocab_size=276)
    [note] = json.loads(cli(project, "plan", "--json").stdout)["result"]["notes"]
    saved = 1 - training["n_text_tokens"] / training["superwords"]["n_text_tokens_before"]
    assert f"The last training's save {saved:.0%} of the tokens of its first phase" in note


def test_a_plan_before_the_first_build_says_that_superwords_are_left_out(tmp_path: Path) -> None:
    project = made(tmp_path)
    done = cli(project, "plan")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "count.superwords counts the text a second time" in words
    assert "train_vocab.superwords makes fewer: how many is known after a build." in words


def test_a_changed_number_of_words_counts_nothing_again_and_keeps_the_first_phase(tmp_path: Path) -> None:
    project = made(tmp_path)
    assert cli(project, "build").returncode == 0
    project.set(train_vocab__superwords={"transition": 0.5, "words_max": 2})
    done = cli(project, "build")
    assert done.returncode == 0, done.stderr
    started = [line.split(",")[0] for line in done.stderr.splitlines() if ": started" in line]
    assert started[0] == "train-vocab: started" and started[1] == "encode: started"
    assert "train-vocab: started, 277 tokens" in done.stderr
    assert max(map(int, training_of(project)["superwords"]["n_tokens_by_words"])) <= 2


def test_a_pattern_that_makes_no_superwords_is_warned_of_at_the_end(tmp_path: Path) -> None:
    project = made(tmp_path, pattern="'[^ ]+|[ ]'")
    assert cli(project, "build", "--only", "count").returncode == 0
    done = cli(project, "build", "--only", "train-vocab")
    assert done.returncode == 0, done.stderr
    assert "superwords: 0 of the" in done.stderr
    assert "WARNING: no token has several words. Either count.superwords ([^ ]+|[ ]) cuts text between" in done.stderr


def test_counts_that_nothing_uses_are_said_when_a_build_begins(tmp_path: Path) -> None:
    project = made(tmp_path, superwords="null")
    project.set(count__by="sources")
    done = cli(project, "build", "--only", "count")
    assert done.returncode == 0, done.stderr
    assert "count.superwords is counted but not used" in done.stderr
    assert "count.by is counted but not used" in done.stderr


def test_weights_count_sentences_as_often(tmp_path: Path) -> None:
    project = made(tmp_path)
    project.set(count__weights={"data/raw/one/*": 3, "data/raw/two/*": 0})
    assert cli(project, "build", "--only", "count").returncode == 0
    counts = read_counts(project.root / "data/counts/superwords.parquet").to_pydict()
    assert dict(zip(counts["pretoken"], counts["count"], strict=True)) == {text.encode(): 3 for text in TEXTS[:2]}


@pytest.mark.parametrize(
    ("superwords", "pattern", "more", "words"),
    [
        ("{transition: 0.5}", "null", {}, "superwords: found without count.superwords"),
        ("{transition: 1.5}", "superbpe", {}, "transition"),
        ("{words_max: 1}", "superbpe", {}, "words_max"),
        ("{transition: 0.99}", "superbpe", {}, "leaves none of the 20 learned tokens"),
        ("{transition: 0.5}", "gpt2", {}, "found 'gpt2', which cuts text between words"),
        ("{transition: 0.5}", "superbpe", {"train_vocab__score": "wordpiece"}, "found together with score: wordpiece"),
        ("{transition: 0.5}", "superbpe", {"train_vocab__vocab_sizes": [260]}, "found together with vocab_sizes"),
        ("null", "superbpe", {"count__weights": {"data/raw/one/*": "1/2"}}, "only with whole weights"),
        ("null", '"(x"', {}, "count.superwords"),
    ],
)
def test_what_does_not_fit_is_one_error(
    tmp_path: Path, superwords: str, pattern: str, more: dict[str, Any], words: str
) -> None:
    project = made(tmp_path, superwords, pattern)
    project.set(**more)
    done = cli(project, "build")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
