"""count.by counts each group of documents, and train_vocab.parity learns from these counts."""

import json
from typing import Any

import pytest

from tests.builders.teams import cli
from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.counts.groups import read_groups
from tokenmill.counts.table import merge, read_counts

ROWS = [
    ("en", "the low lower lowest lows slow slower slowest"),
    ("hi", "नमस्ते दुनिया नमस्ते"),
    ("en", "the cat and the dog and the bird"),
    ("hi", "दुनिया गोल है"),
]


def made(tmp_path: Any, by: str = "lang", parity: str = "{variant: base}", rows: Any = ROWS) -> Project:
    assert cli(Project(tmp_path), "init", "my-tokens").returncode == 0
    project = Project(tmp_path / "my-tokens")
    for folder, some in (("one", rows[:2]), ("two", rows[2:])):
        (project.root / "data/raw" / folder).mkdir(parents=True)
        lines = [json.dumps({"id": f"{folder}{i}", "lang": lang, "text": text}) for i, (lang, text) in enumerate(some)]
        (project.root / "data/raw" / folder / "0.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    project.set(run__engine="inline", train_vocab__vocab_size=290)
    project.set_yaml(count__by=by, train_vocab__parity=parity)
    return project


def groups_of(project: Project) -> dict[str, Any]:
    folder = project.root / "data/counts/groups"
    groups = read_groups(folder)
    return {name: read_counts(groups.path(folder, name)) for name in groups.names}


def test_the_counts_of_the_groups_add_up_to_those_of_all(tmp_path: Any) -> None:
    project = made(tmp_path)
    assert cli(project, "build").returncode == 0
    groups = groups_of(project)
    assert [*groups] == ["en", "hi"]
    assert merge([*groups.values()]).equals(read_counts(project.root / "data/counts/counts.parquet"))
    assert b"the" in groups["en"]["pretoken"].to_pylist()
    report = json.loads((project.root / "data/tokenizer/training.json").read_text(encoding="utf-8"))
    parity = report["parity"]
    assert (parity["by"], parity["measured"], [*parity["groups"]]) == ("lang", "counts", ["en", "hi"])
    assert parity["gini"] <= parity["gini_plain"]
    assert sum(one["n_tokens"] for one in parity["groups"].values()) == report["n_text_tokens"]
    assert Tokenizer.load(project.root / "data/tokenizer").vocab_size == report["vocab_size"]


def test_what_filters_leave_out_by_its_id_is_in_no_group(tmp_path: Any) -> None:
    (tmp_path / "other").mkdir()
    project, other = made(tmp_path), made(tmp_path / "other", rows=ROWS[:2])
    (project.root / "drop.csv").write_text("id,reason\ntwo0,asked\n", encoding="utf-8")
    project.set_drop("drop.csv")
    (other.root / "data/raw/two").mkdir(exist_ok=True)
    (other.root / "data/raw/two/0.jsonl").write_text(
        json.dumps({"id": "two1", "lang": "hi", "text": ROWS[3][1]}) + "\n"
    )
    for each in (project, other):
        done = cli(each, "build")
        assert done.returncode == 0, done.stderr
    assert groups_of(project) == groups_of(other)


def test_a_source_or_a_folder_is_a_group_and_parallel_text_measures_it(tmp_path: Any) -> None:
    project = made(tmp_path, "sources", "{dev: {one: dev/one.txt, two: dev/two.txt}}")
    (project.root / "dev").mkdir()
    (project.root / "dev/one.txt").write_text("low lower दुनिया", encoding="utf-8")
    (project.root / "dev/two.txt").write_text("cat and गोल", encoding="utf-8")
    unseen = cli(project, "build")
    assert (unseen.returncode, "dev/one.txt, but it is not in the stage's deps" in unseen.stderr) == (2, True)
    path = project.root / "dvc.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("deps: [data/counts]", "deps: [data/counts, dev]"), encoding="utf-8"
    )
    done = cli(project, "build")
    assert done.returncode == 0, done.stderr
    assert [*groups_of(project)] == ["one", "two"]
    assert "parity: 2 groups by sources; the Gini coefficient" in done.stderr + done.stdout
    report = json.loads((project.root / "data/tokenizer/training.json").read_text(encoding="utf-8"))
    assert report["parity"]["measured"] == "dev"


def test_a_folder_that_is_renamed_or_has_the_file_of_another_one_is_a_group_of_its_own(tmp_path: Any) -> None:
    project = made(tmp_path, "sources")
    raw = project.root / "data/raw"
    (raw / "two/0.jsonl").write_bytes((raw / "one/0.jsonl").read_bytes())
    assert cli(project, "build").returncode == 0
    groups = groups_of(project)
    assert [*groups] == ["one", "two"] and groups["one"].equals(groups["two"])
    (raw / "two").rename(raw / "zwei")
    assert cli(project, "build").returncode == 0
    assert [*groups_of(project)] == ["one", "zwei"]


@pytest.mark.parametrize(
    ("by", "parity", "rows", "words"),
    [
        ("null", "{variant: base}", ROWS, "parity: found without groups"),
        ("text", "{variant: base}", ROWS, "'text' is the column of the texts"),
        ("lang", "{ratio: {en: 1}}", ROWS, "found no value for 'hi'"),
        ("lang", "{ratio: {en: 1, hi: 2}, dev: {en: x}}", ROWS, "found together with ratio"),
        (
            "lang",
            "{variant: base}",
            [*ROWS, (None, "no language")],
            "key 'lang': expected a string or an integer; found null",
        ),
        ("language", "{variant: base}", ROWS, "Set count.by in params.yaml"),
    ],
)
def test_what_cannot_be_grouped_is_one_error(tmp_path: Any, by: str, parity: str, rows: Any, words: str) -> None:
    done = cli(made(tmp_path, by, parity, rows), "build")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
