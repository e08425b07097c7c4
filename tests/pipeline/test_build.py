"""A build, from the shell, in a real git and DVC repository."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from tests.conftest import DOCUMENTS, Project
from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.artifacts.golden import write_golden
from tokenmill.artifacts.golden_making import make_golden

STAGES = ["count", "train-vocab", "encode", "validate"]


@pytest.mark.slow
def test_a_build_leaves_a_dataset_that_decodes_to_its_documents(project: Project) -> None:
    done = project.run("tokenmill", "build")  # in a process of its own, as users do; the tests below save its imports
    assert done.returncode == 0, done.stderr
    assert project.actions(done) == dict.fromkeys(STAGES, "run")
    tokenizer = Tokenizer.load(project.root / "data/tokenizer")
    end = tokenizer.special_tokens["<|endoftext|>"]
    for shard, documents in DOCUMENTS.items():
        table = pq.read_table(project.root / f"data/tokens/documents/{shard}.parquet")
        assert table.schema.field("input_ids").type.value_type == "uint16"
        assert table["id"].to_pylist() == [f"{shard}-{i}" for i in range(len(documents))]
        assert table["n_bytes"].to_pylist() == [len(text.encode()) for text in documents]
        for ids, text in zip(table["input_ids"].to_pylist(), documents, strict=True):
            assert ids[-1] == end
            assert end not in ids[:-1]
            assert tokenizer.decode(ids[:-1]) == text


def test_the_manifest_and_the_report_say_what_was_made(project: Project) -> None:
    project.build()
    manifest = json.loads((project.root / "data/tokens/manifest.json").read_text(encoding="utf-8"))
    report = json.loads((project.root / "data/report/report.json").read_text(encoding="utf-8"))
    table = pl.read_parquet(project.root / "data/tokens/documents")
    assert manifest["n_documents"] == report["documents"] == table.height == 6
    assert manifest["n_tokens"] == report["tokens"] == table["input_ids"].list.len().sum()
    assert manifest["tokenizer_digest"] == Tokenizer.load(project.root / "data/tokenizer").digest
    assert report["checks"]["documents_equal_to_tokenizers"] == 2  # one of each file


def test_a_second_build_finds_nothing_to_do(project: Project) -> None:
    project.build()
    done = project.run("tokenmill", "build")
    assert "Nothing to do" in done.stderr
    assert project.actions(done) == dict.fromkeys(STAGES, "up to date")


def test_a_train_vocab_value_runs_train_vocab_and_what_follows(project: Project) -> None:
    project.build()
    project.set(train_vocab__vocab_size=270)
    assert project.actions(project.build()) == {
        "count": "up to date",
        "train-vocab": "run",
        "encode": "run",
        "validate": "run",
    }


def test_run_values_change_nothing(project: Project) -> None:
    project.build()
    project.set(run__workers=1, run__memory_mb_max=512)
    assert project.actions(project.build()) == dict.fromkeys(STAGES, "up to date")


@pytest.mark.slow
def test_a_value_set_back_is_restored_without_work(project: Project) -> None:
    project.build()
    before = project.outputs()
    project.set(train_vocab__vocab_size=270)
    project.build()
    project.set(train_vocab__vocab_size=272)
    done = project.build()
    assert "run" not in project.actions(done).values()
    assert project.outputs() == before


def test_two_clean_builds_give_the_same_lock_and_the_same_bytes(new_project: Callable[[str], Project]) -> None:
    one, two = new_project("one"), new_project("two")
    two.set(run__workers=1)
    one.build()
    two.build()
    assert one.outputs() == two.outputs()
    assert (one.root / "dvc.lock").read_bytes() == (two.root / "dvc.lock").read_bytes()


@pytest.mark.slow
def test_after_a_build_dvc_repro_does_nothing_and_the_other_way_round(new_project: Callable[[str], Project]) -> None:
    one, two = new_project("one"), new_project("two")
    one.build()
    assert "up to date" in one.run("dvc", "status").stdout
    lock = (one.root / "dvc.lock").read_bytes()
    repro = one.run("dvc", "repro")
    assert repro.returncode == 0, repro.stderr
    assert "Running stage" not in repro.stdout
    assert (one.root / "dvc.lock").read_bytes() == lock

    repro = two.run("dvc", "repro")
    assert repro.returncode == 0, repro.stderr
    assert repro.stdout.count("Running stage") == len(STAGES)
    assert two.actions(two.build()) == dict.fromkeys(STAGES, "up to date")
    assert (two.root / "dvc.lock").read_bytes() == lock
    assert two.outputs() == one.outputs()


@pytest.mark.slow
def test_dvc_shows_the_graph_and_the_metrics(project: Project) -> None:
    project.build()
    graph = project.run("dvc", "dag", "--mermaid").stdout
    assert all(stage in graph for stage in STAGES)
    metrics = json.loads(project.run("dvc", "metrics", "show", "--json").stdout)
    assert metrics[""]["data"]["data/report/metrics.json"]["data"]["documents"] == 6


def test_only_says_when_a_stage_before_it_is_not_up_to_date(project: Project) -> None:
    project.build()
    assert "not up to date" not in project.build("--only", "encode").stderr
    project.set(count__pattern="cl100k")
    told = "--only encode: count is not up to date, but encode uses its present outputs."
    assert project.build("--only", "encode").stderr.count(told) == 1
    project.set(count__pattern="gpt2", train_vocab__vocab_size=290)
    assert "--only validate: train-vocab is not up to date" in project.build("--only", "validate").stderr


def test_only_runs_that_stage_and_force_runs_what_is_up_to_date(project: Project) -> None:
    project.build()
    assert project.actions(project.build("--only", "encode", "--force")) == {"encode": "run"}
    assert project.actions(project.build("--only", "encode")) == {"encode": "up to date"}


def test_a_frozen_stage_is_not_run(project: Project) -> None:
    project.build()
    project.dvc("freeze", "train-vocab")
    project.set(train_vocab__vocab_size=270)
    assert project.actions(project.build())["train-vocab"] == "frozen"


def test_a_frozen_stage_whose_outputs_are_not_there_is_refused(project: Project) -> None:
    project.dvc("freeze", "encode")
    done = project.cli("build")
    assert done.returncode == 2
    assert "stage encode is frozen in dvc.yaml, so it does not run, and data/" in done.stderr
    assert "dvc unfreeze encode" in done.stderr
    project.dvc("unfreeze", "encode")
    project.build()


def test_documents_without_names_get_their_position(project: Project) -> None:
    project.set(source__id_column=None)
    project.build()
    assert pq.read_table(project.root / "data/tokens/documents/a.jsonl.parquet")["id"].to_pylist() == [0, 1, 2]


def test_without_end_of_document_no_id_is_added(project: Project) -> None:
    project.set(encode__end_of_document=None)
    project.build()
    assert pq.read_table(project.root / "data/tokens/documents/a.jsonl.parquet")["input_ids"].to_pylist()[2] == []


def test_other_libraries_read_the_dataset(project: Project) -> None:
    project.build()
    path = project.root / "data/tokens/documents/a.jsonl.parquet"
    expected = pq.read_table(path)["input_ids"].to_pylist()
    assert pl.read_parquet(path)["input_ids"].to_list() == expected
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(project.root / "hf"))
    assert loaded["input_ids"][:] == expected


def test_dvc_keeps_its_site_cache_in_the_project(project: Project) -> None:
    project.build()
    shown = project.run("dvc", "config", "core.site_cache_dir").stdout.strip()
    assert shown == str(project.root / ".dvc/tmp/site-cache")
    assert (project.root / ".dvc/tmp/site-cache").stat().st_mode & 0o077 == 0


def test_dvc_caches_no_leftovers_and_the_project_has_none(project: Project) -> None:
    project.build()
    names = [path.name for path in project.root.rglob("*")]
    assert not [name for name in names if name.endswith((".partial", ".tmp"))]
    left = {path.name for path in (project.root / ".tokenmill").iterdir()}
    assert left <= {"digests.json", "lock", "units", "last-build.json", "rates.json"}


def test_one_training_gives_smaller_vocabularies_too(project: Project) -> None:
    project.set(train_vocab__vocab_sizes=[260], train_vocab__pad_vocab_to=64)
    project.build("--only", "count")
    project.build("--only", "train-vocab")
    sizes = {name: Tokenizer.load(project.root / "data/tokenizer" / name).vocab_size for name in (".", "260")}
    assert sizes == {".": 320, "260": 320}
    report = json.loads((project.root / "data/tokenizer/training.json").read_text(encoding="utf-8"))
    assert report["text_bytes"] == sum(len(text.encode()) for texts in DOCUMENTS.values() for text in texts)
    assert report["bytes_per_token"] > 1


def test_a_tokenizer_is_extended_when_its_digest_is_the_one_pinned(project: Project) -> None:
    project.build("--only", "count")
    project.build("--only", "train-vocab")
    old = project.root / "old"
    (project.root / "data/tokenizer").rename(old)
    digest = Tokenizer.load(old).digest
    extended = {"path": "old", "digest": "0" * 64, "old_glob": "data/raw/a.jsonl"}
    project.set(train_vocab__extend=extended, train_vocab__vocab_size=276, train_vocab__pair_count_min=1)
    refused = project.cli("build", "--only", "train-vocab")
    assert refused.returncode == 2
    assert digest in refused.stderr
    assert "0" * 64 in refused.stderr
    project.set(train_vocab__extend=extended | {"digest": digest})
    golden = (old / "golden.json").read_bytes()
    changed = json.loads(golden)
    changed["vectors"][0]["ids"].append(0)
    (old / "golden.json").unlink()  # it is read-only
    (old / "golden.json").write_text(json.dumps(changed), encoding="utf-8")
    refused = project.cli("build", "--only", "train-vocab")
    assert refused.returncode == 2
    assert "no longer gives the ids" in refused.stderr
    (old / "golden.json").write_bytes(golden)
    project.build("--only", "train-vocab")
    assert Tokenizer.load(project.root / "data/tokenizer").vocab_size == 276
    report = json.loads((project.root / "data/tokenizer/training.json").read_text(encoding="utf-8"))
    assert report["extended"]["n_tokens_added"] == 4
    assert report["extended"]["n_old_documents"] == len(DOCUMENTS["a.jsonl"])
    ids = pq.read_table(project.root / "data/tokenizer/id_map.parquet").to_pydict()
    assert ids["new_id"] == [*range(276)]
    assert ids["old_id"] == [*range(272), None, None, None, None]


@pytest.mark.slow
def test_a_tokenizer_is_trimmed_by_the_documents_or_by_the_table_of_a_dataset(project: Project) -> None:
    project.build()
    old = project.root / "old"
    shutil.copytree(project.root / "data/tokenizer", old)
    table = pq.read_table(project.root / "data/tables/tokens_per_id.parquet")
    shutil.copy(project.root / "data/tables/tokens_per_id.parquet", old / "uses.parquet")
    digest = Tokenizer.load(old).digest
    trim = {"from": "old", "digest": digest, "keep": 266, "counts": None}
    project.set(train_vocab__trim=trim)
    assert project.actions(project.build())["train-vocab"] == "run"
    new = Tokenizer.load(project.root / "data/tokenizer")
    report = json.loads((project.root / "data/tokenizer/training.json").read_text(encoding="utf-8"))
    n_framing = sum(map(len, DOCUMENTS.values()))
    assert new.vocab_size == 266
    assert report["trimmed"]["n_tokens_dropped"] == 6
    assert report["trimmed"]["n_text_tokens_before"] == sum(table["count"].to_pylist()) - n_framing
    assert report["n_text_tokens"] > report["trimmed"]["n_text_tokens_before"]
    assert pq.read_table(project.root / "data/tokenizer/id_map.parquet").num_rows == 272
    project.set(train_vocab__trim={**trim, "counts": "old/uses.parquet"})
    refused = project.cli("build")
    assert "train_vocab.trim.counts is old/uses.parquet, but it is not in the stage's deps" in refused.stderr
    project.depend("old/uses.parquet", "train-vocab")
    project.build()
    assert Tokenizer.load(project.root / "data/tokenizer").digest == new.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"min_count": 2}, "found both of keep and min_count; allowed: one"),
        ({"keep": None}, "found neither of keep and min_count; allowed: one"),
        ({"keep": 200}, "keep: found 200; allowed: 257"),
        ({"digest": "0" * 64}, "train_vocab.trim.digest: found"),
        ({"chosen": ["no such token"]}, "chosen: found 'no such token', which is no token"),
    ],
)
def test_settings_of_trimming_that_do_not_fit_are_refused_first(
    project: Project, change: dict[str, Any], words: str
) -> None:
    old = train_vocab(Counter("gpt2"), 257, "gpt2", ["<|endoftext|>"])
    old.save(project.root / "old")
    write_golden(make_golden(project.root / "old", old, {}), project.root / "old")
    trim = {"from": "old", "digest": old.digest, "keep": 257, "counts": None} | change
    project.set(train_vocab__trim=trim)
    refused = project.cli("build")
    assert refused.returncode == 2
    assert words in refused.stderr


def test_a_tokenizer_is_trained_from_the_counts_without_the_documents(project: Project) -> None:
    project.build()
    before = project.outputs()
    (project.root / "data/raw").rename(project.root / "away")
    shutil.rmtree(project.root / "data/tokenizer")
    project.build("--only", "train-vocab", "--force")
    assert project.outputs() == before
    project.set(train_vocab__vocab_size=260)
    project.build("--only", "train-vocab")
    assert Tokenizer.load(project.root / "data/tokenizer").vocab_size == 260


def test_counts_without_their_provenance_are_named_with_what_to_do(project: Project) -> None:
    project.build("--only", "count")
    path = project.root / "data/counts/provenance.json"
    path.unlink()
    done = project.cli("build", "--only", "train-vocab")
    assert done.returncode == 2
    assert f"{path}: missing: an older tokenmill made the counts" in done.stderr
    path.write_text('{"shards": []}', encoding="utf-8")
    done = project.cli("build", "--only", "train-vocab")
    assert done.returncode == 2
    assert f"{path}: Object missing required field" in done.stderr


def test_what_a_build_cost_is_kept_for_programs(project: Project) -> None:
    project.build("--only", "count")
    (count,) = json.loads((project.root / ".tokenmill/last-build.json").read_text(encoding="utf-8"))
    assert count["stage"] == "count"
    assert count["peak_mb"] > 1


@pytest.mark.parametrize(
    ("stage", "missing", "first"),
    [
        ("train-vocab", "data/counts", "count"),
        ("encode", "data/tokenizer", "train-vocab"),
        ("validate", "data/counts", "count"),
    ],
)
def test_a_stage_alone_says_which_must_be_built_first(project: Project, stage: str, missing: str, first: str) -> None:
    done = project.cli("build", "--only", stage)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert f"--only {stage}: {project.root / missing} is not there; stage {first} makes it" in line
    assert f"`tokenmill build --only {first}`" in line


@pytest.mark.slow
def test_what_is_wrong_with_the_manifest_is_told_with_its_path(project: Project) -> None:
    project.build()
    (project.root / "data/tokens/manifest.json").unlink()
    done = project.cli("build", "--only", "validate")
    assert done.returncode == 2
    assert f"{project.root}/data/tokens/manifest.json: missing. Run `tokenmill build`" in done.stderr
    project.build()
    project.write("c.jsonl", ["new"])
    done = project.cli("build", "--only", "validate")
    assert done.returncode == 2
    assert "data/tokens/manifest.json: data/raw/c.jsonl is a shard that the manifest does not name" in done.stderr
