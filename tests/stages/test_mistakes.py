"""Mistakes in params.yaml, names of files and first rows are found before anything is counted, in the same words everywhere."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.teams import cli
from tests.conftest import Project, make_project
from tokenmill import Counter, train_vocab
from tokenmill.config.load_params import load_params
from tokenmill.corpus.source_shards import find_documents
from tokenmill.errors import ParamsError
from tokenmill.stages import first_rows
from tokenmill.stages.mistakes import find_mistakes

TALK = {"id": "t", "messages": [{"role": "user", "content": "cat?"}, {"role": "assistant", "content": "yes"}]}
CALL = {"id": "c", "messages": [{"role": "user", "content": "cat?"}], "tools": [{"name": "f"}]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("mistakes") / "project")


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    shutil.copytree(made.root, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")


def found(project: Project) -> list[str]:
    params = load_params(project.root / "params.yaml")
    return [str(one) for one in find_mistakes(project.root, params, find_documents(project.root, params), {}).wrong]


def lines(project: Project, name: str, *rows: dict[str, Any]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (project.root / "data/raw" / name).write_text(text, encoding="utf-8")


def talks(project: Project, *rows: dict[str, Any], template: str = "chatml", special: list[str] | None = None) -> None:
    shutil.rmtree(project.root / "data/raw")
    (project.root / "data/raw").mkdir()
    lines(project, "talks.jsonl", *rows)
    marks = ["<|im_start|>", "<|im_end|>"] if special is None else special
    project.set(source__messages_column="messages", train_vocab__special_tokens=marks)
    project.set(encode__end_of_document=None, encode__chat={"template": template})


def tokenizer(project: Project) -> None:
    counter = Counter(pattern="gpt2")
    counter.update(["the cat sat on the mat"])
    train_vocab(counter, 260, "gpt2", special_tokens=["<|end|>"]).save(project.root / "tokenizer")
    project.set(tokenizer={"from": "tokenizer"})


def imported_without_the_end(project: Project) -> None:
    tokenizer(project)


def imported_without_the_padding(project: Project) -> None:
    tokenizer(project)
    project.set(encode__end_of_document="<|end|>", encode__formats=["arrow"])
    project.set(encode__pack={"length": 8, "mode": "concat", "pad": "<|pad|>"})


def imported_without_the_marks(project: Project) -> None:
    tokenizer(project)
    talks(project, TALK)


def equal_outputs(project: Project) -> None:
    pq.write_table(pa.table({"id": ["a"], "text": ["a"]}), project.root / "data/raw/a.jsonl.parquet")


def equal_files(project: Project) -> None:
    project.write("x/x.jsonl", ["a"])
    project.write("y/y.jsonl", ["a"])
    globs = {"b": "data/raw/x/*", "a-b": "data/raw/y/*"}
    project.set(sources={name: {"glob": glob} for name, glob in globs.items()})
    project.set(encode__formats=["nanogpt"], encode__splits={"one-a": 0.5, "one": 0.5})


def equal_special_tokens(project: Project) -> None:
    project.set(train_vocab__special_tokens=["<|endoftext|>", "a"])


def one_file_without_the_column(project: Project) -> None:
    lines(project, "z.jsonl", {"id": "z", "body": "a"})


def one_file_without_the_group(project: Project) -> None:
    lines(project, "a.jsonl", {"id": "a", "text": "a", "repo": "r"})
    lines(project, "b.jsonl", {"id": "b", "text": "b"})
    project.set(encode__splits={"train": 0.5, "test": 0.5}, encode__split_group="repo")


def a_rejected_token(project: Project) -> None:
    project.set(encode__special_tokens_in_text="reject")


MISTAKES: list[tuple[Callable[[Project], None] | dict[str, Any], str]] = [
    (
        {"encode__formats": ["megatron"], "encode__pack": {"length": 8, "mode": "concat", "labels": True}},
        "encode.formats: megatron: megatron has no place for labels",
    ),
    ({"encode__formats": ["nanogpt"], "train_vocab__vocab_size": 70_000}, "nanogpt holds ids up to 65,535"),
    ({"encode__vocab_sizes": [260]}, "encode.vocab_sizes: found 260; allowed: sizes of train_vocab.vocab_sizes"),
    (
        {"train_vocab__vocab_sizes": [260], "encode__vocab_sizes": [260]},
        "data/vocab_sizes, which is no output of encode in dvc.yaml",
    ),
    ({"count__pattern": "(a"}, "params.yaml: count.pattern: "),
    ({"count__weights": {"data/raw/none/*": 2}}, "count.weights: expected files that match"),
    ({"run__spill_directory": "no/such"}, "run.spill_directory: "),
    ({"source__drop": "drop.csv"}, "source.drop: drop.csv: expected a .csv or .parquet file; found none"),
    (equal_special_tokens, "special_tokens: 'a' is how tokenizer.json writes a byte"),
    (
        {"train_vocab__extend": {"path": "old", "digest": "a" * 64, "old_glob": None}},
        "old",
    ),
    ({"validate__references": ["none.json"]}, "validate.references: none.json: "),
    ({"validate__language_column": "lang"}, "validate.language_column: 'lang' was found in no file"),
    ({"validate__gates": ["bytes_per_token.source.web >= 1"]}, "there is no source 'web'"),
    (
        imported_without_the_end,
        "encode.end_of_document: found '<|endoftext|>'; allowed: one of the tokenizer's special tokens",
    ),
    (imported_without_the_padding, "encode.pack.pad: found '<|pad|>'; allowed: one of the tokenizer's special tokens"),
    (imported_without_the_marks, "chatml marks turns with <|im_start|>, <|im_end|>"),
    (lambda project: talks(project, TALK, special=[]), "chatml marks turns with <|im_start|>, <|im_end|>"),
    (lambda project: talks(project, TALK, template="no.jinja"), "encode.chat.template: found 'no.jinja'"),
    (lambda project: talks(project, TALK, {"id": "b"}), "data/raw/talks.jsonl, line 2: the key 'messages' is missing"),
    (equal_outputs, "would both be encoded into a.jsonl.parquet"),
    (equal_files, "two pairs of a split and a source would have the same file, one-a-b"),
    (one_file_without_the_column, "data/raw/z.jsonl, line 1: the key 'text' is missing"),
    (
        one_file_without_the_column,
        "The other files that were looked at have it: rename it in data/raw/z.jsonl, or give this file a source",
    ),
    (one_file_without_the_group, "data/raw/b.jsonl, row 0: column 'repo': the key 'repo' is missing"),
    (a_rejected_token, "data/raw/b.jsonl, row 0: the special token '<|endoftext|>' stands at byte 16"),
]


def make(project: Project, mistake: Callable[[Project], None] | dict[str, Any]) -> None:
    if callable(mistake):
        mistake(project)
    else:
        project.set(**mistake)


@pytest.mark.parametrize(("mistake", "words"), MISTAKES, ids=[words[:30] for _, words in MISTAKES])
def test_a_mistake_is_found_by_a_look_at_the_project(
    project: Project, mistake: Callable[[Project], None] | dict[str, Any], words: str
) -> None:
    make(project, mistake)
    wrong = found(project)
    assert words in wrong[0]
    assert len(wrong) == 1 + (mistake == {"encode__vocab_sizes": [260]}), wrong  # which dvc.yaml lacks, too


def test_a_project_without_a_mistake_has_none(project: Project) -> None:
    assert found(project) == []
    talks(project, TALK)
    assert found(project) == []
    tokenizer(project)
    project.set(encode__chat=None, encode__end_of_document="<|end|>", source__messages_column=None)
    shutil.rmtree(project.root / "data/raw")
    project.write("a.jsonl", ["the cat"])
    assert found(project) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "words"),
    [one for one in MISTAKES if one[0] in (equal_outputs, one_file_without_the_group, imported_without_the_end)],
)
def test_build_status_plan_and_doctor_say_it_in_the_same_words(
    project: Project, mistake: Callable[[Project], None], words: str
) -> None:
    make(project, mistake)
    said = []
    for command in ("status", "plan", "build"):
        done = cli(project, command)
        assert done.returncode == 2, command
        said.append(done.stderr.partition("]: ")[2].strip())
    assert said[0] == said[1] == said[2] and words in said[0]
    assert not (project.root / "data/counts").exists()
    doctor = cli(project, "doctor", "--json")
    assert doctor.returncode == 1
    assert said[0] in [one["found"] for one in json.loads(doctor.stdout)["result"]["checks"]]


@pytest.mark.slow
def test_several_mistakes_are_one_message_and_a_built_project_is_not_looked_at(project: Project) -> None:
    project.set(validate__references=["none.json"], encode__vocab_sizes=[260])
    done = cli(project, "build")
    assert done.returncode == 2 and "validate.references" in done.stderr and "encode.vocab_sizes" in done.stderr
    project.set(validate__references=[], encode__vocab_sizes=[])
    project.build()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_rows, "read_batches", None)  # which nothing calls
        assert cli(project, "status").returncode == 0
        project.build()


def test_the_documents_that_are_to_be_dropped_are_not_looked_at(project: Project) -> None:
    a_rejected_token(project)
    assert found(project)
    (project.root / "drop.csv").write_text("id,digest,reason\nb.jsonl-0,,asked for\n", encoding="utf-8")
    project.set_drop("drop.csv")
    assert found(project) == []


def test_a_file_of_bad_documents_is_not_read_to_its_end(project: Project) -> None:
    project.write("z.jsonl", ["a"] * 5000)
    project.set(source__text_column="body")
    (wrong,) = found(project)
    assert "z.jsonl, line 1: the key 'body' is missing; found the keys id, text (1,000 or more such documents)" in wrong


def test_a_gate_without_the_part_of_its_measure_is_refused(project: Project) -> None:
    project.set(validate__gates=["bytes_per_token >= 1"])
    with pytest.raises(ParamsError, match=r"allowed: bytes_per_token.overall, bytes_per_token.source.NAME, "):
        load_params(project.root / "params.yaml")
    project.set(validate__gates=["trained_share >= 0.1"])
    with pytest.raises(ParamsError, match=r"a measure of conversations; allowed: with encode.chat, which is null"):
        load_params(project.root / "params.yaml")
