"""`tokenmill choose` measures vocabularies as a build would make them."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.builders.teams import cli
from tests.conftest import Project, make_project
from tokenmill import Tokenizer
from tokenmill.config.load_params import load_params
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.features.plan.choose import Rung, _knee, choose, lines_of
from tokenmill.report.bigram import bigram
from tokenmill.report.sample import row_keys

WORDS = ["the low lower lowest newest mills grind", "slowly and the cats sat on low mats", "der Müller mahlt das Korn"]
DOCUMENTS = {
    "en/a.jsonl": [f"{WORDS[i % 2]} {i}" for i in range(40)],
    "de/b.jsonl": [f"{WORDS[2]} {i}" for i in range(20)],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = make_project(tmp_path_factory.mktemp("choose") / "project", DOCUMENTS)
    sources = {"en": {"glob": "data/raw/en/*"}, "de": {"glob": "data/raw/de/*"}}
    project.set(sources=sources, count__weights={"data/raw/de/*": 3}, encode__end_of_document=None)
    return project


def rungs(project: Project, sizes: list[int], patterns: list[str]) -> list[Rung]:
    return choose(project.root, load_params(project.root / "params.yaml"), sizes, patterns, 64)


def test_a_rung_is_what_a_build_makes(project: Project) -> None:
    found = rungs(project, [272, 264, 280], ["gpt2"])
    assert [one.vocab_size for one in found] == [264, 272, 280]
    assert [one.n_embedding for one in found] == [64 * 264, 64 * 272, 64 * 280]
    project.build()
    tokenizer = Tokenizer.load(project.root / "data/tokenizer")  # of 272 tokens
    texts = {name[:2]: some for name, some in DOCUMENTS.items()}
    lists = {source: [tokenizer.encode(text) for text in some] for source, some in texts.items()}
    n_tokens = {source: sum(map(len, some)) for source, some in lists.items()}
    n_bytes = {source: sum(len(text.encode()) for text in some) for source, some in texts.items()}
    rung = found[1]
    assert rung.n_tokens == sum(n_tokens.values())
    assert rung.by_source == {source: round(n_bytes[source] / n_tokens[source], 4) for source in ("de", "en")}
    assert rung.bytes_per_token == round(sum(n_bytes.values()) / sum(n_tokens.values()), 4)
    used = {id for some in lists.values() for ids in some for id in ids}
    assert rung.n_unused == len(set(tokenizer.tokens) - used - set(tokenizer.special_tokens.values()))


def test_the_knee_is_farthest_above_the_line_between_the_ends() -> None:
    one = Rung("gpt2", 1000, 2.0, {}, 1, 1, 1)
    ladder = [replace(one, vocab_size=1000 << i, bytes_per_token=gain) for i, gain in enumerate((2.0, 3.0, 3.3, 3.5))]
    assert _knee(ladder) == 1  # the line is at 2.5 and 3.0 there: 0.5 and 0.3 above it
    assert _knee(ladder[:2]) is None
    lines = lines_of([ladder[0], replace(ladder[1], is_knee=True), *ladder[2:]])
    assert [line.endswith("<- the knee") for line in lines[1:5]] == [False, True, False, False]
    assert lines[-2:] == ["  count.pattern: gpt2", "  train_vocab.vocab_size: 2000"]


def test_the_command_compares_patterns_and_keeps_nothing(project: Project) -> None:
    before = sorted(path for path in project.root.rglob("*") if ".git" not in path.parts)
    done = cli(project, "choose", "--sizes", "264", "280", "--patterns", "gpt2", "llama3")
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:5]] == [
        ["gpt2", "264"],
        ["gpt2", "280"],
        ["llama3", "264"],
        ["llama3", "280"],
    ]
    assert sorted(path for path in project.root.rglob("*") if ".git" not in path.parts) == before


def test_bits_per_byte_are_those_of_the_report_on_a_corpus_that_is_the_sample(project: Project) -> None:
    found = rungs(project, [264, 272], ["gpt2"])
    texts, keys = [], []
    for name, some in DOCUMENTS.items():
        texts += some
        keys.append(row_keys(f"data/raw/{name}", np.arange(len(some), dtype=np.uint64)))
    project.build()
    tokenizer = Tokenizer.load(project.root / "data/tokenizer")  # of 272 tokens
    lists = [tokenizer.encode(text) for text in texts]
    lengths, n_bytes = (np.array([len(one) for one in some]) for some in (lists, [text.encode() for text in texts]))
    ids = np.array([id for ids in lists for id in ids], np.uint32)
    expected = bigram(ids, lengths, n_bytes, np.concatenate(keys)).bits_per_byte
    assert expected is not None and expected > 0
    assert found[1].bits_per_byte == round(expected, 4)


def test_the_plot_has_a_line_for_each_pattern_and_a_mark_at_the_knee(project: Project, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    cli(project, "choose", "--sizes", "264", "272", "288", "--patterns", "gpt2", "llama3", "--plot", str(plot))
    svg = ElementTree.fromstring(plot.read_text())
    words = [one.text for one in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("knee") == 2
    assert {"gpt2", "llama3", "vocabulary size", "bytes per token"} <= set(words)
    done = cli(project, "choose", "--plot", str(tmp_path / "none/plot.svg"))
    assert done.returncode == 2
    assert "--plot: found" in done.stderr


def test_what_leaves_no_room_or_no_documents_is_an_error(project: Project, tmp_path: Path) -> None:
    with pytest.raises(
        ParamsError, match=r"--sizes: expected more than 257, the number of bytes and special tokens; found 256"
    ):
        rungs(project, [256], ["gpt2"])
    empty = make_project(tmp_path / "project", {})
    with pytest.raises(CorpusError):
        rungs(empty, [300], ["gpt2"])
