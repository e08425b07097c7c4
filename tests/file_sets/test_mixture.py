"""Mixtures of named sources: how often documents are in the file sets, and the blend files."""

import json
import re
import shutil
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

import tokenmill
from tests.builders.built_sets import items
from tests.builders.corpora import weigh
from tests.builders.teams import build, cli
from tests.conftest import Project, make_project
from tokenmill.dataset.manifest import Manifest, read_manifest, write_manifest
from tokenmill.errors import ParamsError

DOCUMENTS = {
    "web/a.jsonl": [f"the {n} cat sat on mat {n * n}" for n in range(60)],
    "code/b.jsonl": [f"def f{n}(): return {n * 7} {'x ' * (n % 5)}" for n in range(50)],
    "books/c.jsonl": [f"once upon a time {n} there was {'a ' * (n % 9)}" for n in range(40)],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = make_project(tmp_path_factory.mktemp("mixture") / "project", DOCUMENTS)
    weigh(project, web={}, code={}, books={})
    build(project)
    return project


@pytest.fixture
def project(built: Project, tmp_path: Path) -> Project:
    shutil.copytree(built.root, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")


def found(project: Project, format: str, split: str | None = None) -> Counter[str]:
    """How often each document is in the sets of a format, by its id."""
    sets = [
        one for one in read_manifest(project.root / "data/tokens").sets if (one.format, one.split) == (format, split)
    ]
    return Counter(row["id"] for one in sets for part in items(project, one) for row in part)


def mixture_of(project: Project) -> dict[tuple[str | None, str], list[int]]:
    """Documents and tokens of each source in the Arrow files of each split, of one epoch."""
    of: dict[tuple[str | None, str], list[int]] = {}
    for one in read_manifest(project.root / "data/tokens").sets:
        if one.format == "arrow" and not one.epoch:
            for row in (row for part in items(project, one) for row in part):
                entry = of.setdefault((one.split, row["id"].split("/")[0]), [0, 0])
                entry[0] += 1
                entry[1] += len(row["input_ids"])
    return of


def said(manifest: Manifest) -> dict[tuple[str | None, str], list[int]]:
    """The same, as the manifest says it."""
    return {(one.split, one.source): [one.n_documents, one.n_tokens] for one in manifest.mixture}


@pytest.mark.slow
def test_a_weight_is_whole_passes_and_a_share_that_grows_by_adding_documents(project: Project) -> None:
    project.set(encode__formats=["arrow", "megatron", "olmo"])
    chosen = []
    for epochs in (0.3, 0.6, 2.5):
        weigh(project, web={"epochs": epochs}, code={}, books={"epochs": 2})
        build(project)
        counts = found(project, "arrow")
        web = {id: n for id, n in counts.items() if id.startswith("web")}
        chosen.append({id for id, n in web.items() if n > int(epochs)})
        assert set(web.values()) <= {1, int(epochs), int(epochs) + 1}
        assert all(n == 1 for id, n in counts.items() if id.startswith("code"))
        assert all(n == 2 for id, n in counts.items() if id.startswith("books"))
    assert len(web) == 60
    assert chosen[0] < chosen[1] and 0 < len(chosen[0]) < len(chosen[1]) < 60
    sets = {(one.format, one.source): one for one in read_manifest(project.root / "data/tokens").sets}
    first, second = sets["arrow", "books"].parts
    assert first.files[0].sha256 == second.files[0].sha256  # two whole passes are equal files
    blend = (project.root / "data/tokens/megatron/blend.txt").read_text(encoding="utf-8").split()
    weights, prefixes = [int(one) for one in blend[::2]], blend[1::2]
    assert all(
        (project.root / "data/tokens" / f"{prefix}.{suffix}").exists()
        for prefix in prefixes
        for suffix in ("bin", "idx")
    )
    assert sum(weights) == sum(part.n_tokens for key, one in sets.items() if key[0] == "megatron" for part in one.parts)
    listed = YAML(typ="safe", pure=True).load(
        (project.root / "data/tokens/olmo/blend.yaml").read_text(encoding="utf-8")
    )
    assert [one["source_name"] for one in listed["sources"]] == ["books", "code", "web"]
    assert sum(one["target_ratio"] for one in listed["sources"]) == pytest.approx(1)
    assert all((project.root / "data/tokens" / path).exists() for one in listed["sources"] for path in one["paths"])
    web = tokenmill.open(project.root / "data/tokens", source="web")
    assert len(web) == found(project, "arrow").total() - 50 - 80  # all but the documents of the other two
    manifest = read_manifest(project.root / "data/tokens")
    assert len(manifest.mixture) == 3 and said(manifest) == mixture_of(project)
    assert [(one.source, one.epochs) for one in manifest.mixture] == [("books", "2"), ("code", "1"), ("web", "5/2")]
    done = cli(project, "verify")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_budget_of_tokens_is_met_but_for_a_document_and_shuffling_mixes_all_sources(project: Project) -> None:
    splits = {"train": 0.8, "validation": 0.2}
    project.set(encode__formats=["arrow"], encode__shuffle={"seed": 1}, encode__splits=splits)
    weigh(project, web={"tokens": 300}, code={"tokens": 2000}, books={})
    build(project)
    manifest = read_manifest(project.root / "data/tokens")
    assert {one.source for one in manifest.sets} == {None}
    train = next(one for one in manifest.sets if one.split == "train")
    rows = [row for part in items(project, one=train) for row in part]
    tokens = Counter()
    for row in rows:
        tokens[row["id"].split("/")[0]] += len(row["input_ids"])
    longest = max(len(row["input_ids"]) for row in rows)
    assert 300 - longest < tokens["web"] <= 300
    assert 2000 - longest < tokens["code"] <= 2000
    order = [row["id"].split("/")[0] for row in rows]
    assert order != sorted(order)
    assert set(found(project, "arrow", "validation").values()) == {1}  # only the first split is mixed
    done = cli(project, "verify")
    assert done.returncode == 0, done.stdout
    weigh(project, web={"tokens": 300}, code={"tokens": 2000}, books={"epochs": 3})
    done = build(project)
    assert "encode: 0 of 3 units to do" in done.stderr  # weights are no matter of units


@pytest.fixture(scope="module")
def mixed(built: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Shuffled for two epochs, with two splits, two budgets of tokens, and what the build said in `said.txt`."""
    shutil.copytree(built.root, root := tmp_path_factory.mktemp("mixed") / "project", symlinks=True)
    project = Project(root)
    project.set(
        encode__formats=["arrow"],
        encode__shuffle={"seed": 1, "epochs": 2},
        encode__splits={"train": 0.8, "validation": 0.2},
        run__report_page=True,
    )
    weigh(project, web={"tokens": 300}, code={"tokens": 2000}, books={})
    (root / "said.txt").write_text(build(project).stderr, encoding="utf-8")
    return project


@pytest.mark.slow
def test_the_manifest_says_what_the_sets_of_one_epoch_have_of_each_source(mixed: Project) -> None:
    manifest = read_manifest(mixed.root / "data/tokens")
    assert said(manifest) == mixture_of(mixed)
    epochs = {(one.split, one.source): Fraction(one.epochs) for one in manifest.mixture}
    assert epochs["train", "web"] < 1 < epochs["train", "code"]
    assert {epochs["train", "books"], *(epochs["validation", name] for name in ("books", "code", "web"))} == {1}


@pytest.mark.slow
def test_the_build_info_and_the_report_tell_the_mixture(mixed: Project) -> None:
    found = mixture_of(mixed)
    told = json.loads(cli(mixed, "info", "--json").stdout)["result"]["mixture"]
    by_source = {(one["split"], one["source"]): one for one in told}
    assert {key: [one["documents"], one["tokens"]] for key, one in by_source.items()} == found
    web = by_source["train", "web"]
    assert web["weight"] == {"tokens": 300} and by_source["validation", "web"]["weight"] is None
    assert by_source["train", "books"]["weight"] == {"epochs": 1.0}
    tokens, share = web["tokens"], web["tokens"] / sum(found["train", name][1] for name in ("books", "code", "web"))
    assert web["share"] == pytest.approx(share)
    report = json.loads((mixed.root / "data/report/report.json").read_text(encoding="utf-8"))["mixture"]
    assert [{**one, "epochs": None, "share": None} for one in report] == [
        {**one, "epochs": None, "share": None} for one in told
    ]
    assert [one["share"] for one in report] == pytest.approx([one["share"] for one in told], abs=1e-6)
    cells = f'a budget of 300 tokens</td><td class="n">{web["epochs"]:.4g}</td>'
    page = (mixed.root / "data/report/report.html").read_text(encoding="utf-8")
    assert cells in page.replace(">\n<", "><")
    words = f"{found['train', 'web'][0]} documents, {tokens:,} tokens ({share:.1%}), epochs: {web['epochs']:.4g}"
    assert words in cli(mixed, "info").stdout
    words = f"{tokens:,} tokens of web (epochs: {web['epochs']:.4g})"
    line = next(one for one in (mixed.root / "said.txt").read_text(encoding="utf-8").splitlines() if "mixture" in one)
    assert line.startswith("encode: the mixture of train has ") and words in line


@pytest.mark.slow
def test_verify_finds_another_mixture_in_the_manifest(mixed: Project, tmp_path: Path) -> None:
    shutil.copytree(mixed.root, tmp_path / "copy", symlinks=True)
    project, folder = Project(tmp_path / "copy"), tmp_path / "copy/data/tokens"
    manifest = read_manifest(folder)
    assert cli(project, "verify").returncode == 0
    *first, last = manifest.mixture
    for mixture in ([*first, last.model_copy(update={"n_tokens": last.n_tokens + 1})], first, []):
        (folder / "manifest.json").chmod(0o644)
        write_manifest(manifest.model_copy(update={"mixture": mixture}), folder)
        done = cli(project, "verify")
        assert done.returncode == 1 and "mixture: it says " in done.stdout
    shards = []
    for name, shard in manifest.outputs():  # as they were named in format 6
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / shard.name).rename(folder / name)
        shards.append(shard.model_copy(update={"name": name}))
    write_manifest(manifest.model_copy(update={"mixture": [], "shards": shards, "format_version": 6}), folder)
    done = cli(project, "verify", "--no-tables")
    assert "mixture" not in done.stdout  # it was not there before
    write_manifest(manifest.model_copy(update={"files": None, "sets": []}), folder)
    assert "mixture: it names sources of file sets" in cli(project, "verify").stdout


@pytest.mark.slow
@pytest.mark.parametrize("output", ["rows", "index"])
def test_of_packed_documents_the_mixture_has_what_is_in_sequences(project: Project, output: str) -> None:
    pack = {"length": 14, "mode": "best_fit", "long": "drop", "output": output}
    project.set(encode__formats=["arrow"], encode__pack=pack, encode__shuffle={"seed": 1})
    weigh(project, web={"epochs": 2}, code={}, books={})
    build(project)
    manifest = read_manifest(project.root / "data/tokens")
    documents = [
        row for shard in manifest.shards for row in pq.read_table(project.root / "data/tokens" / shard.name).to_pylist()
    ]
    expected = {name: [0, 0] for name in ("books", "code", "web")}
    for row in documents:
        source = row["id"].split("/")[0]
        times, n = 2 if source == "web" else 1, len(row["input_ids"])
        expected[source][0] += times
        expected[source][1] += times * (n if n <= 14 else 0)
    assert said(manifest) == {(None, name): numbers for name, numbers in expected.items()}
    kept = sum(n_tokens for _, n_tokens in expected.values())
    packed = manifest.packed[""]
    assert 0 < kept == packed["n_sequences"] * 14 - packed["n_padding"] and packed["n_dropped_tokens"]
    assert cli(project, "verify").returncode == 0


@pytest.mark.slow
def test_a_budget_of_too_many_epochs_is_refused_and_the_dataset_stays(project: Project) -> None:
    project.set(encode__formats=["arrow"])
    weigh(project, web={"tokens": 10**14}, code={}, books={})
    before = (project.root / "data/tokens/manifest.json").read_bytes()
    done = cli(project, "build")
    assert done.returncode == 2 and (project.root / "data/tokens/manifest.json").read_bytes() == before
    assert re.search(
        r"sources\.web\.tokens: found 100,000,000,000,000, which is [\d,]{11,} epochs of the source; "
        r"allowed: at most 1,000 epochs\.",
        done.stderr,
    )


def test_more_epochs_than_can_be_meant_are_refused(project: Project) -> None:
    weigh(project, web={"epochs": 1000.5}, code={}, books={})
    done = cli(project, "status")
    assert done.returncode == 2 and "sources.web.epochs: found 1000.5" in done.stderr and "1000" in done.stderr


@pytest.mark.slow
def test_a_source_of_shuffled_files_cannot_be_opened_alone(mixed: Project) -> None:
    with pytest.raises(
        ParamsError, match="source: expected none, since the files have all sources together; found 'web'"
    ):
        tokenmill.open(mixed.root / "data/tokens", "train", source="web")
