"""tokenmill status says what a build would do now, and why, without running anything."""

import json
from collections.abc import Sequence

import pytest

from tests.conftest import Project
from tokenmill.corpus import units
from tokenmill.corpus.shards import Shard, find_shards
from tokenmill.corpus.units import sha256_of_shards
from tokenmill.pipeline.input_changes import input_changes, last_manifest
from tokenmill.storage import file_facts
from tokenmill.storage.file_facts import Digests


@pytest.mark.slow
def test_a_status_names_what_would_be_done_and_why_and_does_nothing(project: Project) -> None:
    project.build()
    done = project.cli("status")
    assert [line.split(maxsplit=1)[1] for line in done.stdout.splitlines()] == ["up to date"] * 4
    before = project.outputs()
    project.set(train_vocab__vocab_size=300)
    project.write("c.jsonl", ["a new one"])
    done = project.cli("status")
    assert done.returncode == 1
    count, train_vocab, encode, _ = done.stdout.splitlines()
    assert "data/raw modified" in count
    assert "params.yaml: train_vocab modified" in train_vocab
    assert "data/raw modified" in encode
    found = json.loads(project.cli("status", "--json").stdout)["result"]["stages"]
    assert [one["after"] for one in found][:2] == [[], ["count"]]
    assert project.outputs() == before
    project.build()
    assert project.cli("status").returncode == 0


def test_a_status_before_the_first_build_has_everything_to_do(project: Project) -> None:
    done = project.cli("status")
    assert done.returncode == 1
    assert [line.split(maxsplit=1)[1] for line in done.stdout.splitlines()] == ["to do: never built"] * 4


@pytest.mark.slow
def test_a_verbose_status_names_each_file_that_changed_and_reads_no_other(project: Project) -> None:
    assert "There is no dataset" in project.cli("status", "-v").stdout
    for name in "cde":
        project.write(f"{name}.jsonl", [f"the text of {name}"])
    project.build()
    assert project.cli("status", "-v").stdout.splitlines()[-1].startswith("The files are those")
    raw = project.root / "data/raw"
    text = (raw / "a.jsonl").read_text(encoding="utf-8")
    (raw / "a.jsonl").write_text(text.replace("cat", "bat"), encoding="utf-8")  # of the same length
    (raw / "b.jsonl").unlink()
    (raw / "c.jsonl").rename(raw / "cc.jsonl")
    project.write("n.jsonl", ["a new one"])
    before = (project.root / ".tokenmill/digests.json").read_bytes()
    lines = project.cli("status", "-v").stdout.splitlines()
    assert lines[lines.index("Files since the dataset was made:") + 1 :] == [
        "  changed  data/raw/a.jsonl",
        "  new      data/raw/n.jsonl",
        "  removed  data/raw/b.jsonl",
        "  renamed  data/raw/cc.jsonl, was data/raw/c.jsonl",
        "  2 unchanged",
    ]
    assert (project.root / ".tokenmill/digests.json").read_bytes() == before
    files = json.loads(project.cli("status", "-v", "--json").stdout)["result"]["files"]
    assert (files["changed"], files["n_unchanged"]) == (["data/raw/a.jsonl"], 2)
    assert "files" not in json.loads(project.cli("status", "--json").stdout)["result"]


def test_files_that_seem_unchanged_are_not_read_to_compare_them(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.build()
    monkeypatch.setattr(file_facts, "_RACY_NS", 0)
    digests = Digests(project.root)
    sha256_of_shards(find_shards(project.root, "data/raw/*"), digests, 10**9, 1)
    with (project.root / "data/raw/a.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n")
    monkeypatch.setattr(units, "_look", lambda *_: pytest.fail("a file was read"))
    asked: list[str] = []

    def sha256_of(some: Sequence[Shard]) -> dict[Shard, str]:
        asked.extend(shard.name for shard in some)
        return sha256_of_shards(some, digests, 10**9, 1)

    manifest = last_manifest(project.root)
    assert manifest is not None
    found = input_changes(manifest, find_shards(project.root, "data/raw/*"), sha256_of)
    assert (found.changed, found.n_unchanged, asked) == (["data/raw/a.jsonl"], 1, ["data/raw/b.jsonl"])


@pytest.mark.slow
def test_a_verbose_build_says_why_a_stage_and_a_unit_are_redone(project: Project) -> None:
    project.build()
    project.write("a.jsonl", ["other text"])
    project.write("c.jsonl", ["a new one"])
    said = project.build("-v").stderr
    assert "count: to do: data/raw modified\n" in said
    assert "count data/raw/a.jsonl: to do: data/raw/a.jsonl changed\n" in said
    assert "count data/raw/c.jsonl: to do: data/raw/c.jsonl is new\n" in said
    assert "count data/raw/b.jsonl: to do" not in said
    same = "its files are the same; a parameter, a line of source.drop, the code or an earlier stage's output changed"
    assert f"encode data/raw/b.jsonl: to do: {same}\n" in said  # with another tokenizer
    assert "validate data/raw/a.jsonl: to do: data/raw/a.jsonl changed\n" in said
    project.set(encode__end_of_document=None)
    said = project.build("-v").stderr
    assert "train-vocab: to do: params.yaml: encode.end_of_document modified\n" in said
    assert f"encode data/raw/a.jsonl: to do: {same}\n" in said
    assert "count: to do: --force\n" in project.build("-v", "--force").stderr


def test_a_file_beside_small_ones_is_the_reason_where_they_share_a_unit(project: Project) -> None:
    project.set(source__unit_bytes_min=100_000)
    project.build()
    (project.root / "data/raw/b.jsonl").unlink()
    assert "count data/raw/a.jsonl: to do: other files share the unit now\n" in project.build("-v").stderr
