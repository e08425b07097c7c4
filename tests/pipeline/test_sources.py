"""Named sources: each is read by its own columns and policy, and counted apart everywhere."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.teams import build, cli
from tests.conftest import Project, make_project
from tokenmill.analysis.verify import Verdict, VerifyOptions, verify
from tokenmill.config.load_params import load_params
from tokenmill.console import console
from tokenmill.corpus.shards import find_shards
from tokenmill.corpus.source_shards import find_documents
from tokenmill.corpus.units import cut, source_name
from tokenmill.dataset.manifest import Manifest, read_manifest, write_manifest
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.features.plan.planning import make_plan
from tokenmill.features.plan.sampling import SampleSize
from tokenmill.layout import PROVENANCE_FILE
from tokenmill.storage.file_facts import Digests

END = "<|endoftext|>"
WEB = {"mix/1.jsonl": [f"the {i} cats sat on the mat {END}" for i in range(9)], "mix/3.jsonl": ["a dog, a log"] * 4}
CODE = {"mix/2.parquet": [f"def f{i}(): return {END}" for i in range(7)], "mix/4.parquet": ["import os", "pass"]}
NOTES = ["first note of the day", f"the second {END} note", "die dritte Notiz"]
SOURCES = {
    "web": {"glob": "data/raw/mix/*.jsonl"},
    "code": {
        "glob": ["data/raw/mix/*.parquet"],
        "text_column": "content",
        "id_column": "path",
        "special_tokens_in_text": "allow",
        "epochs": 1.5,
    },
    "notes": {"glob": "data/raw/notes/*.txt", "text_separator": "\n--\n", "tokens": 500},
}
FILES = {"web": "mix/1.jsonl+1.parquet", "code": "mix/2+1.parquet", "notes": "notes/n.txt.parquet"}
TEXTS = {"web": [one for some in WEB.values() for one in some], "code": [one for some in CODE.values() for one in some]}
TEXTS["notes"] = NOTES


def write_code(root: Path, name: str, texts: Sequence[str]) -> None:
    paths = [f"{name}-{i}.py" for i in range(len(texts))]
    table = {"path": paths, "content": texts, "summary": [f"what {one} does" for one in paths]}
    pq.write_table(pa.table(table), root / "data/raw" / name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project of three sources with columns, formats and policies of their own, two of which share a folder."""
    project = make_project(tmp_path_factory.mktemp("sources") / "project", WEB)
    for name, texts in CODE.items():
        write_code(project.root, name, texts)
    (project.root / "data/raw/notes").mkdir()
    (project.root / "data/raw/notes/n.txt").write_text("\n--\n".join(NOTES), encoding="utf-8")
    project.set(source__glob="nowhere/*", source__unit_bytes_min=1_000_000)
    project.set(**{f"sources__{name}": one for name, one in SOURCES.items()})
    build(project)
    before, console.level = console.level, -1
    yield project
    console.level = before


@pytest.fixture
def project(built: Project, tmp_path: Path) -> Project:
    """A copy of it, to change."""
    shutil.copytree(built.root, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")


def rows_of(project: Project, source: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(project.root / "data/tokens/documents" / FILES[source]).to_pylist()
    return rows


def check(project: Project, with_source: bool = True) -> Verdict:
    source = project.root if with_source else None
    return verify(project.root / "data/tokens", VerifyOptions(None, source, sample_documents=9, seed=0, threads=1))


def rewritten(project: Project, **changes: Any) -> None:
    """Writes the manifest with other values, and with the digest of these."""
    folder = project.root / "data/tokens"
    manifest = read_manifest(folder)
    write_manifest(Manifest.model_validate(manifest.model_dump() | changes), folder)


def units_done(project: Project) -> dict[str, str]:
    """Builds with the tokenizer that there is, and gives how many units each stage did; "all" where it does not say."""
    found = dict.fromkeys(("encode", "validate"), "all")
    for line in build(project).stderr.splitlines():
        stage, _, words = line.partition(": ")
        if "units to do" in words and found.get(stage, "all") == "all":  # the lines after that are of the file sets
            found[stage] = words.split(" units")[0]
    return found


def with_fixed_tokenizer(project: Project) -> None:
    for stage in ("count", "train-vocab"):
        assert project.run("dvc", "freeze", stage).returncode == 0


def test_each_source_is_read_by_its_columns_and_has_files_of_its_own(built: Project) -> None:
    manifest = read_manifest(built.root / "data/tokens")
    assert {shard.name for shard in manifest.shards} == {f"documents/{file}" for file in FILES.values()}
    for source, texts in TEXTS.items():
        assert [row["n_bytes"] for row in rows_of(built, source)] == [len(one.encode()) for one in texts]
    assert [row["id"] for row in rows_of(built, "code")][-2:] == ["mix/4.parquet-0.py", "mix/4.parquet-1.py"]
    assert [row["id"] for row in rows_of(built, "web")][:2] == ["mix/1.jsonl-0", "mix/1.jsonl-1"]
    assert [row["id"] for row in rows_of(built, "notes")] == ["0", "1", "2"]


def test_each_source_has_its_own_policy_for_special_tokens(built: Project) -> None:
    """The first id is that of the only special token, which also ends each document."""
    n = {source: sum(row["input_ids"][:-1].count(0) for row in rows_of(built, source)) for source in FILES}
    assert n == {"web": 0, "code": 7, "notes": 0}


def test_the_manifest_says_which_file_is_of_which_source_and_what_each_source_is(built: Project) -> None:
    manifest = read_manifest(built.root / "data/tokens")
    assert {one.name.removeprefix("data/raw/"): one.source for one in manifest.inputs} == {
        **dict.fromkeys(WEB, "web"), **dict.fromkeys(CODE, "code"), "notes/n.txt": "notes",
    }  # fmt: skip
    assert [one.name for one in manifest.sources] == ["code", "notes", "web"]
    code, notes, _ = manifest.sources
    assert (code.text_column, code.id_column, code.text_separator) == ("content", "path", None)
    assert (notes.text_column, notes.id_column, notes.text_separator) == ("text", "id", "\n--\n")
    assert [one.special_tokens_in_text for one in manifest.sources] == ["allow", "as_text", "as_text"]
    assert [(one.epochs, one.tokens) for one in manifest.sources] == [(1.5, None), (None, 500), (1.0, None)]
    for one in manifest.sources:
        rows = rows_of(built, one.name)
        assert one.n_documents == len(rows) == len(TEXTS[one.name])
        assert one.n_tokens == sum(len(row["input_ids"]) for row in rows)
        assert one.text_bytes == sum(len(text.encode()) for text in TEXTS[one.name])
    assert manifest.source is None and manifest.has_ids


def test_tables_and_report_count_by_source(built: Project) -> None:
    by_source = pq.read_table(built.root / "data/tables/tokens_per_id_by_source.parquet").to_pylist()
    totals: dict[str, int] = {}
    for row in by_source:
        totals[row["source"]] = totals.get(row["source"], 0) + row["count"]
    manifest = read_manifest(built.root / "data/tokens")
    assert totals == {one.name: one.n_tokens for one in manifest.sources}
    report = json.loads((built.root / "data/report/report.json").read_text(encoding="utf-8"))
    assert {one["name"] for one in report["groups"] if one["kind"] == "source"} == set(SOURCES)
    assert report["special_texts"] == {"code": {END: 7}, "notes": {END: 1}, "web": {END: 9}}
    assert report["measures"]["bytes_per_token"]["source"] == {
        one.name: round(one.text_bytes / one.n_tokens, 6) for one in manifest.sources
    }
    checks = report["checks"]
    assert checks["documents_equal_after_decoding"] == manifest.n_documents
    assert checks["documents_equal_to_tokenizers"] >= len(SOURCES)
    assert checks["documents_equal_to_tiktoken"] >= len(SOURCES) - 1  # not those of code, whose special tokens are ids


def test_counting_reads_all_sources(built: Project) -> None:
    found = json.loads((built.root / "data/counts/report.json").read_text(encoding="utf-8"))
    assert found["documents"] == sum(map(len, TEXTS.values()))
    assert found["text_bytes"] == sum(len(one.encode()) for some in TEXTS.values() for one in some)
    provenance = json.loads((built.root / PROVENANCE_FILE).read_text(encoding="utf-8"))
    assert {one["name"].removeprefix("data/raw/"): one["source"] for one in provenance["shards"]}[
        "mix/2.parquet"
    ] == "code"
    assert provenance["sources"]["code"] == {"text_column": "content", "id_column": "path", "text_separator": None}


def test_info_names_the_sources_with_their_weights(built: Project) -> None:
    said = cli(built, "info").stdout
    assert "source code    9 documents, " in said and "epochs: 1.5" in said
    assert "source notes   3 documents, " in said and "a budget of 500 tokens" in said
    assert "special tokens in text: allow in code, as_text in notes, as_text in web" in said
    found = json.loads(cli(built, "info", "--json").stdout)["result"]["sources"]
    assert [(one["name"], one["weight"]) for one in found][:2] == [
        ("code", {"epochs": 1.5}),
        ("notes", {"tokens": 500}),
    ]


def test_locate_finds_documents_of_each_source(built: Project) -> None:
    for id, shard in (("mix/4.parquet-1.py", "mix/4.parquet"), ("2", "notes/n.txt"), ("mix/3.jsonl-3", "mix/3.jsonl")):
        [found] = json.loads(cli(built, "locate", "--id", id, "--json").stdout)["result"]["documents"]
        assert found["shard"] == f"data/raw/{shard}"


def test_the_dataset_is_right_with_its_documents_and_without(project: Project) -> None:
    for with_source in (True, False):
        found = check(project, with_source)
        assert (found.result, found.findings, found.not_checked) == ("right", [], [])
        assert found.checked["documents"] == sum(map(len, TEXTS.values()))
    for file in ("params.yaml", "dvc.yaml"):
        (project.root / file).unlink()  # a copy without the project: the manifest alone says how documents are read
    assert check(project).result == "right"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("n_documents", 1, "sources: code: n_documents, n_tokens and text_bytes are [1, "),
        ("text_column", "summary", "data/raw/mix/2.parquet: row 0: n_bytes: found 30, expected 28"),
        ("special_tokens_in_text", "as_text", "special token id 0 inside a document"),
        ("epochs", None, "sources: code: expected one of epochs and tokens; found None and None"),
        ("id_column", None, "sources: expected an id_column for all of them or for none; found some of each"),
        ("epochs", 2.0, "sources.code: params.yaml says it otherwise: epochs is 2.0, not 1.5."),
        ("name", "web", "sources: expected each name once; found ['web', 'notes', 'web']"),
        ("name", "other", "data/raw/mix/2.parquet: source is 'code', which is not among the sources"),
    ],
)
def test_a_source_that_the_manifest_says_wrong_is_found(project: Project, key: str, value: Any, words: str) -> None:
    code, *others = read_manifest(project.root / "data/tokens").model_dump()["sources"]
    rewritten(project, sources=[code | {key: value}, *others])
    found = check(project)
    assert found.result == "wrong"
    assert any(words in one.what for one in found.findings), found.findings


def test_a_file_that_is_said_to_be_of_another_source_is_found(project: Project) -> None:
    inputs = read_manifest(project.root / "data/tokens").model_dump()["inputs"]
    said = [one | {"source": "web"} if one["name"].endswith("4.parquet") else one for one in inputs]
    rewritten(project, inputs=said)
    what = [one.what for one in check(project).findings]
    assert any("holds documents of several sources, ['code', 'web']" in one for one in what)
    assert any(
        "data/raw/mix/4.parquet: is of the source web; in params.yaml, it is of the source code" in one for one in what
    )


def test_a_plan_reads_a_document_by_the_columns_of_its_source(project: Project) -> None:
    plan = make_plan(project.root, load_params(project.root / "params.yaml"), SampleSize())
    assert not any(one.would_run for one in plan.stages)
    shutil.rmtree(project.root / ".tokenmill")
    shutil.rmtree(project.root / "data/tokens")
    (project.root / "dvc.lock").unlink()
    plan = make_plan(project.root, load_params(project.root / "params.yaml"), SampleSize())
    n = sum(map(len, TEXTS.values()))
    assert (plan.ranges["documents"].low, plan.ranges["documents"].high) == (n, n)
    assert [one.n_units for one in plan.stages if one.n_units] == [3, 3, 3]


def test_doctor_looks_into_the_documents_of_each_source(project: Project) -> None:
    def found() -> dict[str, str]:
        checks = json.loads(cli(project, "doctor", "--json").stdout)["result"]["checks"]
        return next(one for one in checks if one["name"] == "text")

    assert found()["state"] == "ok"
    project.set(sources__code=SOURCES["code"] | {"text_column": "body"})
    assert found()["state"] == "wrong" and "mix/2.parquet: the column 'body' is missing" in found()["found"]
    assert "Set sources.code.text_column in params.yaml, which holds for all files of the source" in found()["found"]


@pytest.mark.slow
def test_another_column_of_one_source_redoes_its_units_alone(project: Project) -> None:
    with_fixed_tokenizer(project)
    project.set(sources__code=SOURCES["code"] | {"text_column": "summary"})
    assert units_done(project) == {"encode": "1 of 3", "validate": "1 of 3"}
    assert rows_of(project, "code")[0]["n_bytes"] == len("what mix/2.parquet-0.py does")
    project.set(sources__web=SOURCES["web"] | {"special_tokens_in_text": "allow"})
    assert units_done(project) == {"encode": "1 of 3", "validate": "1 of 3"}
    assert sum(row["input_ids"][:-1].count(0) for row in rows_of(project, "web")) == 9
    assert check(project).result == "right"


@pytest.mark.slow
def test_another_weight_or_name_redoes_no_unit(project: Project) -> None:
    with_fixed_tokenizer(project)
    project.set(sources__code=SOURCES["code"] | {"epochs": 3})
    assert units_done(project) == {"encode": "0 of 3", "validate": "0 of 3"}
    assert read_manifest(project.root / "data/tokens").sources[0].epochs == 3
    project.set(sources={"www" if name == "web" else name: one for name, one in SOURCES.items()})
    assert units_done(project) == {"encode": "0 of 3", "validate": "0 of 3"}
    by_source = pq.read_table(project.root / "data/tables/tokens_per_id_by_source.parquet", columns=["source"])
    assert set(by_source["source"].to_pylist()) == {"code", "notes", "www"}
    assert check(project).result == "right"


@pytest.mark.slow
def test_a_list_of_documents_to_leave_out_is_for_all_sources(project: Project) -> None:
    with_fixed_tokenizer(project)
    digest = hashlib.sha256(NOTES[2].encode()).hexdigest()
    (project.root / "drop.csv").write_text(f"id,digest,reason\nmix/2.parquet-3.py,,licence\n,{digest},duplicate\n")
    project.set_drop("drop.csv")
    assert units_done(project)["validate"] == "2 of 3"
    assert (len(rows_of(project, "code")), len(rows_of(project, "notes")), len(rows_of(project, "web"))) == (8, 2, 13)
    assert [one.n_documents for one in read_manifest(project.root / "data/tokens").sources] == [8, 2, 13]
    assert check(project).result == "right"


def test_a_dataset_comes_back_from_dvc_without_work(project: Project) -> None:
    """The unit store is lost, and gets the units of all sources back from the dataset that dvc.lock records."""
    with_fixed_tokenizer(project)
    shutil.rmtree(project.root / ".tokenmill")
    project.set(sources__code=SOURCES["code"] | {"epochs": 2})
    assert units_done(project)["encode"] == "0 of 3"


def test_equal_sources_give_the_bytes_of_a_build_without_names(project: Project) -> None:
    """Names alone change no document, unit or id."""
    shutil.rmtree(project.root / "data/raw/mix")
    shutil.rmtree(project.root / "data/raw/notes")
    for name in ("a", "b"):
        project.write(f"{name}/1.jsonl", [f"{name} {i}" for i in range(9)])
        project.write(f"{name}/2.jsonl", [f"{name} {i}" for i in range(9)])
    found = []
    for sources in ({name: {"glob": f"data/raw/{name}/*"} for name in ("a", "b")}, {}):
        project.set(sources=sources)
        project.set(source__glob="data/raw/**/*")
        build(project)
        manifest = read_manifest(project.root / "data/tokens")
        found.append([(one.name, one.sha256) for one in (*manifest.shards, *manifest.tables)])
    assert found[0] == found[1]
    text = (project.root / "data/tokens/manifest.json").read_text(encoding="utf-8")
    assert manifest.sources == [] and '"sources": []' in text
    assert set(json.loads(text)["inputs"][0]) == {"name", "n_bytes", "sha256"}


def test_small_shards_of_different_sources_never_share_a_unit(built: Project) -> None:
    shards = find_documents(built.root, load_params(built.root / "params.yaml"))
    assert [shard.named_source for shard in shards] == ["web", "code", "web", "code", "notes"]
    units = cut(shards, Digests(built.root), 1_000_000, 10_000_000, 1).units
    assert {unit.output: unit.source.name for unit in units} == {file: name for name, file in FILES.items()}
    assert [(unit.source.epochs, unit.source.tokens) for unit in units] == [(1.0, None), (1.5, None), (None, 500)]
    [first, *_] = find_shards(built.root, "data/raw/mix/*")
    assert source_name(first) == "mix" and source_name(shards[0]) == "web"


def test_mistakes_are_told_with_the_names_of_the_sources(project: Project) -> None:
    def error(**sources: Any) -> str:
        project.set(sources=sources)
        with pytest.raises((CorpusError, ParamsError)) as raised:
            find_documents(project.root, load_params(project.root / "params.yaml"))
        return str(raised.value)

    whole = {"glob": "data/raw/mix/*"}
    said = error(web=SOURCES["web"], x=whole)
    assert "data/raw/mix/1.jsonl is matched by sources.web.glob and by sources.x.glob; allowed: one source" in said
    assert "sources.code.glob: expected files that match 'data/raw/code/*'" in error(code={"glob": "data/raw/code/*"})
    said = error(web=SOURCES["web"], code={"glob": "data/raw/mix/*.parquet", "id_column": None})
    assert "sources: found an id_column for web, and none for code; allowed: an id_column for all of them" in said
    assert "sources.web.glob: missing. Add the glob of the source's files" in error(web={})
    assert "sources.web.text_colum: unknown key" in error(web=whole | {"text_colum": "x"})
    assert "Did you mean text_column?" in error(web=whole | {"text_colum": "x"})
    assert "sources.Web: found 'Web'; allowed: what the regex" in error(Web=whole)
    assert "sources.size: found 'size'; allowed: other names" in error(size=whole)
    assert "sources.web.tokens: found together with epochs 1.5; allowed: only one of the two" in error(
        web=whole | {"epochs": 1.5, "tokens": 7}
    )
    assert "sources.web.epochs: found 0; allowed: more than 0" in error(web=whole | {"epochs": 0})
    assert "sources.web.tokens: found 1.5; allowed: a whole number" in error(web=whole | {"tokens": 1.5})


def test_a_build_tells_mistakes_with_the_names_of_the_sources(project: Project) -> None:
    project.set(sources=SOURCES | {"web": SOURCES["web"] | {"text_column": "body"}})
    said = cli(project, "build").stderr
    assert "sources.web.text_column: the column or key that it names is missing or of the wrong kind" in said
    (project.root / "elsewhere").mkdir()
    (project.root / "elsewhere/a.txt").write_text("a")
    project.set(sources=SOURCES | {"more": {"glob": "elsewhere/*"}})
    said = cli(project, "build").stderr
    assert "elsewhere/a.txt matches sources.more.glob but is in none of the stage's deps" in said
