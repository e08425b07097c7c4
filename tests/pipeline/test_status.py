"""tokenmill status says what a build would do now, and why, without running anything."""

import json
import shutil
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import tokenmill
from tests.conftest import Project
from tokenmill.config.lockfile import Lock, write_lock
from tokenmill.config.source_params import Source
from tokenmill.corpus import units
from tokenmill.corpus.shards import Shard, find_shards
from tokenmill.corpus.units import sha256_of_shards
from tokenmill.pipeline.code_digest import libraries, output_digest_with
from tokenmill.pipeline.code_pins import code_changes, pin_code
from tokenmill.pipeline.input_changes import changes_since, last_manifest
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
    assert count.endswith("to do: files of documents: 1 new")
    assert train_vocab.endswith("to do: parameter train_vocab.vocab_size changed")
    assert encode.endswith("to do: files of documents: 1 new; follows train-vocab: the tokenizer may change")
    planned = {one["stage"]: one for one in json.loads(project.cli("plan", "--json").stdout)["result"]["stages"]}
    assert "; ".join(planned["encode"]["reasons"]) == encode.partition("to do: ")[2]
    found = json.loads(project.cli("status", "--json").stdout)["result"]["stages"]
    assert [one["after"] for one in found][:2] == [[], ["count"]]
    assert project.outputs() == before
    project.build()
    assert project.cli("status").returncode == 0


@pytest.mark.slow
def test_a_vocabulary_size_that_has_no_effect_on_an_imported_tokenizer_is_told(project: Project) -> None:
    project.build()
    shutil.copy(project.root / "data/tokenizer/tokenizer.json", project.root)
    path = project.root / "params.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("tokenizer: null", "tokenizer: {from: tokenizer.json}"))
    assert "no effect" not in project.build().stderr
    project.set(train_vocab__vocab_size=300)
    words = "parameter train_vocab.vocab_size changed (it has no effect, since the tokenizer is imported)"
    assert words in project.cli("status").stdout
    assert words in project.cli("build", "-v").stderr
    project.set(train_vocab__vocab_size=301)
    assert "With an imported one, count and train_vocab have no effect." in project.build().stderr


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
    found = changes_since(manifest, find_shards(project.root, "data/raw/*"), sha256_of)
    assert (found.changed, found.n_unchanged, asked) == (["data/raw/a.jsonl"], 1, ["data/raw/b.jsonl"])


def todo(project: Project, *arguments: str) -> dict[str, str]:
    """What a build with -v says of each stage and unit that it does: the cause by name."""
    lines = (line.split(": to do: ") for line in project.build("-v", *arguments).stderr.splitlines())
    return {line[0]: line[1] for line in lines if len(line) == 2}


@pytest.mark.slow
def test_a_verbose_build_says_one_cause_for_each_unit(project: Project) -> None:
    project.build()
    project.write("a.jsonl", ["other text"])
    project.write("c.jsonl", ["a new one"])
    found = todo(project)
    assert found["count"] == "files of documents: 1 new, 1 changed"
    assert found["count data/raw/a.jsonl"] == "data/raw/a.jsonl changed"
    assert found["count data/raw/c.jsonl"] == "data/raw/c.jsonl is new"
    assert "count data/raw/b.jsonl" not in found
    assert found["train-vocab"] == "counts changed"
    assert found["encode"] == "files of documents: 1 new, 1 changed; tokenizer changed"
    assert found["encode data/raw/b.jsonl"] == found["validate data/raw/b.jsonl"] == "tokenizer changed"
    assert found["validate data/raw/a.jsonl"] == "data/raw/a.jsonl changed"
    assert found["validate"].startswith("files of documents: 1 new, 1 changed; ")
    project.set(encode__end_of_document=None)
    found = todo(project)
    assert found["train-vocab"] == "parameter encode.end_of_document changed"
    assert found["encode data/raw/a.jsonl"] == "parameter encode.end_of_document changed"
    assert todo(project, "--force")["count"] == "forced by --force"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "stage"),
    [
        ("source.id_column", None, "count"),
        ("source.unit_bytes_min", 100_000, "count"),
        ("source.unit_bytes_max", 60, "count"),
        ("count.pattern", "cl100k", "count"),
        ("encode.begin_of_document", "<|endoftext|>", "encode"),
        ("encode.special_tokens_in_text", "allow", "encode"),
        ("encode.split_group", "id", "encode"),
        ("validate.sample_documents", 3, "validate"),
    ],
)
def test_a_parameter_that_decides_the_bytes_of_units_is_their_cause(
    project: Project, key: str, value: Any, stage: str
) -> None:
    if key == "encode.split_group":
        project.set(encode__splits={"train": 0.5, "test": 0.5})
    project.build()
    project.set(**{key.replace(".", "__"): value})
    assert f"parameter {key} changed" in project.cli("status").stdout
    found = todo(project)
    causes = {name: cause for name, cause in found.items() if " data/raw/" in name}
    assert f"parameter {key} changed" in {cause for name, cause in causes.items() if name.startswith(stage)}
    assert not [cause for cause in causes.values() if "store" in cause]


@pytest.mark.slow
def test_a_cleaned_store_deleted_outputs_and_a_drop_list_are_causes_of_their_own(project: Project) -> None:
    project.build()
    shutil.rmtree(project.root / ".tokenmill/units")
    project.write("c.jsonl", ["a new one"])
    assert todo(project)["count data/raw/b.jsonl"] == "not in the unit store"
    shutil.rmtree(project.root / "data/report")
    (project.root / "data/report").mkdir()
    shutil.rmtree(project.root / "data/counts")
    count, train_vocab, *_, validate = project.cli("status").stdout.splitlines()
    assert count.endswith("to do: outputs deleted: data/counts")
    assert train_vocab.endswith("up to date")  # the counts come back as they were
    assert "outputs deleted: data/report/report.json" in validate
    project.build()
    (project.root / "drop.csv").write_text("id,reason\na.jsonl-1,takedown\n", encoding="utf-8")
    project.set_drop("drop.csv")
    assert project.cli("status").stdout.splitlines()[0].endswith("to do: drop list changed")
    found = todo(project)
    assert found["count"] == "drop list changed"
    assert found["documents data/raw/b.jsonl"] == "its documents are not compared with source.drop yet"
    assert found["count data/raw/a.jsonl"] == "drop list changed"
    assert "count data/raw/b.jsonl" not in found


@pytest.mark.slow
def test_renamed_files_are_told_as_renamed_and_make_no_unit_anew(project: Project) -> None:
    project.build()
    (project.root / "data/raw/deep").mkdir()
    (project.root / "data/raw/a.jsonl").rename(project.root / "data/raw/deep/z.jsonl")
    assert project.cli("status").stdout.splitlines()[0].endswith("to do: files of documents: 1 renamed")
    found = todo(project)
    assert found["train-vocab"] == "files beside the counts changed, but not the counts"
    assert found["encode"].endswith("files of the tokenizer changed, but not its ids")
    assert list(found) == ["count", "train-vocab", "encode", "validate"]


@pytest.mark.slow
def test_several_changes_at_once_are_all_told_and_in_the_same_words_by_status_and_plan(project: Project) -> None:
    project.build()
    project.set(source__glob="data/raw/[!b]*", count__count_min=2, encode__begin_of_document="<|endoftext|>")
    project.write("c.jsonl", ["a new one"])
    said = dict(line.split(maxsplit=1) for line in project.cli("status").stdout.splitlines())
    planned = json.loads(project.cli("plan", "--json").stdout)["result"]["stages"]
    for one in planned:
        words = "; ".join(one["reasons"])
        assert said[one["stage"]] in (words, f"to do: {words}")
    files = "files of documents: 1 new, 1 removed"
    assert said["count"] == f"to do: {files}; parameter source.glob changed; parameter count.count_min changed"
    assert said["encode"].startswith(
        f"to do: {files}; parameter source.glob changed; parameter encode.begin_of_document"
    )


def test_a_verbose_build_says_why_a_stage_is_restored(project: Project) -> None:
    project.build()
    path = project.root / "data/tables/dropped.parquet"
    path.unlink()
    said = project.build("-v").stderr
    assert "encode: restored: outputs changed since they were built: data/tables\n" in said


def test_a_file_beside_small_ones_is_the_cause_where_they_share_a_unit(project: Project) -> None:
    project.set(source__unit_bytes_min=100_000)
    project.build()
    (project.root / "data/raw/b.jsonl").unlink()
    assert todo(project)["count data/raw/a.jsonl"] == "the unit has other files now"


def test_another_code_of_the_same_files_is_told_as_a_library_if_it_is_one(project: Project) -> None:
    """The digest that a lock pins tells which of the two it was."""
    with project.edited("dvc.yaml") as pipeline:
        pipeline["stages"]["count"]["params"].append({"tokenmill.lock": ["code.count"]})
    before = libraries() | {"pyarrow": "1.2.3"}
    pinned = Lock.model_validate(
        {
            "tokenmill": tokenmill.__version__,
            "code": {"count": output_digest_with("count", before)},
            "libraries": before,
        }
    )
    write_lock(project.root, pinned)
    assert code_changes(project.root, Source())["count"].words == f"library changed: pyarrow 1.2.3 → {pa.__version__}"
    write_lock(project.root, pinned.model_copy(update={"code": {"count": "0" * 64}}))
    assert code_changes(project.root, Source())["count"].words == "code changed"
    write_lock(project.root, pinned.model_copy(update={"code": {"count": "0" * 64}, "tokenmill": "0.0.9"}))
    assert (
        code_changes(project.root, Source())["count"].words
        == f"code changed: tokenmill 0.0.9 → {tokenmill.__version__}"
    )
    pin_code(project.root, Source())
    assert code_changes(project.root, Source()) == {}


def test_a_default_that_is_written_or_left_out_runs_nothing_but_dvc_needs_the_keys_that_it_names(
    project: Project,
) -> None:
    project.build()
    project.set(train_vocab__forbid=[], encode__shuffle=None, validate__sample_documents=32)
    with project.edited("params.yaml") as params:
        del params["encode"]["pack"]
    assert project.cli("status").returncode == 0
    project.set(train_vocab__protect=["ab"])
    assert "train-vocab  to do: parameter train_vocab.protect changed\n" in project.cli("status").stdout
    with project.edited("params.yaml") as params:
        del params["train_vocab"]["trim"]
    done = project.cli("build")
    assert done.returncode == 2
    assert "error[TM103]: params.yaml: expected the keys that dvc.yaml names among the params of count" in done.stderr
