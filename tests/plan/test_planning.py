"""tokenmill plan: what a build would do and cost, with ranges, and what it then took."""

import dataclasses
import gzip
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.builders.corpora import weigh
from tests.conftest import Project
from tokenmill.config.load_params import load_params
from tokenmill.counts.table import read_counts
from tokenmill.dataset.manifest import read_manifest
from tokenmill.errors import CorpusError, SpecialTokenError
from tokenmill.features.plan.costs import Costs
from tokenmill.features.plan.estimate import Estimate, exactly
from tokenmill.features.plan.planning import Disk, Plan, _disks, make_plan, refusals
from tokenmill.features.plan.sampling import SampleSize
from tokenmill.features.plan.work import find_work
from tokenmill.layout import COUNTS_FILE
from tokenmill.pipeline.last_plan import compare, disk_used, shown
from tokenmill.pipeline.memory import Memory
from tokenmill.pipeline.rates import keep_rates, read_rates
from tokenmill.summary import StageSummary

MAKES = ("documents", "tokens", "text_bytes", "output_bytes", "distinct")


def plan_of(project: Project, seed: int = 0, **sizes: int) -> Plan:
    return make_plan(project.root, load_params(project.root / "params.yaml"), SampleSize(seed, **sizes))


def work(plan: Plan) -> dict[str, tuple[int | None, list[str]]]:
    return {one.stage: (one.n_units_todo, one.reasons) for one in plan.stages}


def texts_of(n: int, seed: int) -> list[str]:
    """Documents of words by Zipf's law, a few of them long."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 9))) for _ in range(5000)]
    weights = [1 / (i + 1) for i in range(len(words))]
    return [" ".join(rng.choices(words, weights, k=int(20 + rng.expovariate(1 / 150)))) for _ in range(n)]


@pytest.mark.slow
def test_a_plan_of_a_small_corpus_reads_all_of_it_touches_nothing_and_holds(project: Project) -> None:
    before = {path: path.read_bytes() for path in (project.root / "data").rglob("*") if path.is_file()}
    done = project.cli("plan")
    assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in (project.root / "data").rglob("*") if path.is_file()} == before
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "never built" in done.stdout
    assert project.cli("plan", "--outcome").returncode == 2
    assert (
        project.run("tokenmill", "build").returncode == 0
    )  # in a process of its own, whose memory is that of the build
    done = project.cli("plan", "--outcome", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["quantity"]: row for row in json.loads(done.stdout)["result"]["rows"]}
    assert rows["documents"]["found"] == 6
    assert [rows[name]["is_inside"] for name in ("documents", "text_bytes", "peak_memory_bytes")] == [True] * 3
    assert rows["seconds encode"]["found"] > 0
    assert "in range" in project.cli("plan", "--outcome").stdout


def test_documents_that_source_drop_names_are_not_in_the_plan(project: Project) -> None:
    project.build()
    n_documents = read_manifest(project.root / "data/tokens").n_documents
    project.set_drop("drop.csv")
    (project.root / "drop.csv").write_text("id,reason\na.jsonl-1,takedown\n")
    found = json.loads(project.cli("plan", "--json").stdout)["result"]["quantities"]["documents"]
    assert found["low"] <= n_documents - 1 <= found["high"] < n_documents


def test_a_seed_draws_the_same_sample_again(project: Project) -> None:
    for i in range(3):
        project.write(f"{i}.jsonl", texts_of(600, i))
    sizes = {"read_bytes": 200_000, "work_bytes": 100_000}
    ranges = [plan_of(project, seed, **sizes).ranges for seed in (1, 1, 2)]
    one, again, other = [{name: each[name] for name in MAKES} for each in ranges]
    assert one == again
    assert one != other


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_a_part_of_large_files_gives_a_range_that_holds_the_whole(project: Project, suffix: str) -> None:
    shutil.rmtree(project.root / "data/raw")
    texts = texts_of(8000, seed=5)
    for i in range(2):
        some = texts[i::2]
        path = project.write(f"{i}.jsonl", some)
        if suffix == ".jsonl.gz":
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        if suffix == ".parquet":
            table = pa.table({"id": [str(row) for row in range(len(some))], "text": some})
            pq.write_table(table, path.with_suffix(suffix), row_group_size=100)
        if suffix != ".jsonl":
            path.unlink()
    plan = plan_of(project, seed=3, read_bytes=1_000_000, work_bytes=1_000_000)
    text_bytes = sum(map(len, texts))
    assert plan.sampled_bytes < text_bytes
    assert plan.ranges["documents"].low <= len(texts) <= plan.ranges["documents"].high
    assert plan.ranges["text_bytes"].low <= text_bytes <= plan.ranges["text_bytes"].high
    assert abs(plan.ranges["text_bytes"].point / text_bytes - 1) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    "arranged",
    [
        {"encode__formats": ["parquet", "arrow", "megatron", "mds"], "encode__shuffle": {"seed": 0, "epochs": 2}},
        {"encode__formats": ["arrow", "olmo"], "encode__splits": {"train": 0.8, "test": 0.2}},
        {
            "encode__formats": ["arrow"],
            "encode__pack": {"length": 64, "mode": "best_fit", "labels": True},
            "encode__shuffle": {"seed": 0},
        },
        {
            "encode__formats": ["litdata"],
            "encode__pack": {"length": 64, "mode": "none", "long": "cut", "pad": "<|endoftext|>"},
        },
        {
            "encode__formats": ["arrow"],
            "encode__pack": {"length": 64, "mode": "none", "long": "split", "pad": "<|endoftext|>"},
        },
        {"encode__formats": ["mds"], "encode__pack": {"length": 64, "mode": "best_fit", "long": "cut"}},
        {"encode__formats": ["arrow"], "encode__pack": {"length": 200, "mode": "best_fit", "long": "drop"}},
        {
            "encode__formats": ["arrow", "megatron"],
            "encode__pack": {"length": 64, "mode": "best_fit", "output": "index"},
            "encode__shuffle": {"seed": 0, "epochs": 3},
        },
    ],
    ids=["shuffled", "split", "labels", "padded", "split-padded", "cut", "dropped", "index"],
)
def test_the_file_sets_of_a_mixture_are_in_the_plan(project: Project, arranged: dict[str, Any]) -> None:
    for i, name in enumerate(("web", "code", "books")):
        project.write(f"{name}/a.jsonl", texts_of(300, i))
    project.set(**arranged)
    weigh(project, web={"epochs": 2.5}, code={"tokens": 20_000}, books={})
    assert project.cli("plan").returncode == 0
    project.build()
    done = project.cli("plan", "--outcome", "--json")
    rows = {row["quantity"]: row for row in json.loads(done.stdout)["result"]["rows"]}
    assert rows["sets_bytes"]["found"] > 10_000
    assert [name for name in ("sets_bytes", "disk_bytes") if not rows[name]["is_inside"]] == []


def test_file_sets_of_an_encoded_corpus_are_tried_on_a_sample_and_those_of_a_finished_build_are_known(
    project: Project,
) -> None:
    project.write("c.jsonl", texts_of(300, 1))
    project.build()
    project.set(encode__formats=["arrow"])
    plan = plan_of(project)
    assert work(plan)["encode"] == (0, ["parameter encode.formats changed"])
    project.build()
    manifest = read_manifest(project.root / "data/tokens")
    n_bytes = sum(file.n_bytes for file in manifest.sets[0].files)
    tried = plan.ranges["sets_bytes"]
    assert tried.low <= n_bytes <= tried.high
    assert plan.ranges["tokens"] == exactly(manifest.n_tokens)
    assert plan_of(project).ranges["sets_bytes"] == exactly(n_bytes)


def test_the_columns_that_the_document_index_keeps_are_in_the_plan(project: Project) -> None:
    shutil.rmtree(project.root / "data/raw")
    (project.root / "data/raw").mkdir()
    rng = random.Random(0)
    rows = [{"id": f"{i}", "text": text, "note": rng.randbytes(500).hex()} for i, text in enumerate(texts_of(2000, 2))]
    pq.write_table(pa.Table.from_pylist(rows), project.root / "data/raw/a.parquet", row_group_size=100)
    project.set(source__keep_columns=["note"], source__on_bad_document="quarantine")
    sampled: list[dict[str, int]] = [{}, {"read_bytes": 500_000, "work_bytes": 500_000}]
    for sizes in sampled:
        assert plan_of(project, seed=1, **sizes).ranges["disk_bytes"].low > 2 * 500 * len(rows)
    assert project.cli("plan").returncode == 0
    project.build()
    done = project.cli("plan", "--outcome", "--json")
    found = {row["quantity"]: row for row in json.loads(done.stdout)["result"]["rows"]}
    assert found["disk_bytes"]["is_inside"], found["disk_bytes"]


def test_a_budget_that_can_only_be_a_slip_is_refused_by_the_plan(project: Project) -> None:
    project.write("web/a.jsonl", texts_of(20, 0))
    project.set(encode__formats=["arrow"])
    weigh(project, web={"tokens": 10**14})
    done = project.cli("plan")
    assert done.returncode == 1
    assert "Do not build yet: sources.web.tokens: 100,000,000,000,000 are about" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_finished_units_cost_nothing(project: Project) -> None:
    project.set(source__unit_bytes_min=0)
    project.build()
    plan = plan_of(project)
    assert work(plan) == {"count": (0, []), "train-vocab": (None, []), "encode": (0, []), "validate": (0, [])}
    assert plan.ranges["documents"] == exactly(6)
    assert plan.ranges["disk_bytes"] == plan.ranges["seconds"] == exactly(0)
    project.write("c.jsonl", ["a new one"])
    plan = plan_of(project)
    new, after = ["files of documents: 1 new"], "follows train-vocab: the tokenizer may change"
    assert work(plan) == {
        "count": (1, new),
        "train-vocab": (None, ["follows count"]),
        "encode": (3, [*new, after]),
        "validate": (3, [*new, after]),
    }
    for stage in ("count", "train-vocab"):
        project.dvc("freeze", stage)
    plan = plan_of(project)
    assert work(plan)["encode"] == (1, new)
    assert work(plan)["validate"] == (1, new)
    assert plan.ranges["documents"] == exactly(7)
    assert "seconds count" not in plan.ranges
    (project.root / "data/raw/a.jsonl").unlink()
    assert work(plan_of(project))["encode"] == (1, ["files of documents: 1 new, 1 removed"])


def test_files_that_were_read_before_are_not_estimated(project: Project) -> None:
    texts = texts_of(400, 1)
    project.write("old.jsonl", texts)
    project.build()
    manifest = read_manifest(project.root / "data/tokens")
    few = {"read_bytes": 60_000, "work_bytes": 60_000}
    project.set(count__pattern="cl100k")
    plan = plan_of(project, **few)
    assert work(plan)["encode"][0] == 3
    assert plan.ranges["documents"] == exactly(manifest.n_documents)
    assert plan.ranges["text_bytes"] == exactly(manifest.text_bytes)
    project.write("new.jsonl", texts_of(50, 2))
    documents = plan_of(project, **few).ranges["documents"]
    assert manifest.n_documents + 25 < documents.low <= manifest.n_documents + 50 <= documents.high
    assert documents.high - documents.low < 50
    project.set(source__id_column=None)  # what is read of the files may change
    assert plan_of(project, **few).ranges["documents"].low < manifest.n_documents


@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_new_file_is_estimated_by_itself_and_not_by_those_that_are_known(project: Project, level: int) -> None:
    """The files before it may be compressed otherwise, and may be so many that the sample would miss it."""
    shutil.rmtree(project.root / "data/raw")
    for i in range(16):
        path = project.write(f"{i}.jsonl", texts_of(60, i))
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 6))
        path.unlink()
    project.build()
    path = project.write("new.jsonl", texts := texts_of(300, 99))
    path.with_name("new.jsonl.gz").write_bytes(gzip.compress(path.read_bytes(), level))
    path.unlink()
    ranges = plan_of(project, read_bytes=20_000, work_bytes=20_000).ranges
    assert abs(ranges["documents"].point - 60 * 16 - len(texts)) < 0.3 * len(texts)


def test_no_fewer_distinct_pretokens_are_expected_than_are_counted_already(project: Project) -> None:
    letters = "abcdefghij"
    names = ["".join(letters[int(digit)] for digit in f"{i:05}") for i in range(20_000)]
    shutil.rmtree(project.root / "data/raw")
    at_the_end = [" ".join(names[i : i + 40]) for i in range(0, len(names), 40)]
    project.write("a.jsonl", ["one word " * 60] * 4000 + at_the_end)  # where the sample does not look
    project.build()
    n_counted = read_counts(project.root / COUNTS_FILE).num_rows
    few = {"read_bytes": 4000, "work_bytes": 4000}
    project.write("new.jsonl", ["one word " * 500] * 50)
    distinct = plan_of(project, **few).ranges["distinct"]
    assert n_counted <= distinct.low <= distinct.point <= distinct.high
    (project.root / "data/raw/a.jsonl").unlink()
    assert plan_of(project, **few).ranges["distinct"].low < n_counted


def test_no_range_begins_below_what_is_known_already(project: Project) -> None:
    project.write("old.jsonl", texts_of(50, 1))
    project.build()
    manifest = read_manifest(project.root / "data/tokens")
    project.write("short.jsonl", ["a"] * 20_000)
    project.write("long.jsonl", ["a" * 40_000] * 10)
    ranges = plan_of(project, read_bytes=300_000, work_bytes=300_000).ranges  # 150 kB of each new file
    assert manifest.n_documents < ranges["documents"].low < manifest.n_documents + 20_010
    assert manifest.text_bytes + 40_000 < ranges["text_bytes"].low < manifest.text_bytes + 420_000
    assert ranges["distinct"].low > 0


def test_counts_that_stay_are_known_where_a_vocabulary_is_learned_from_them(project: Project) -> None:
    project.write("old.jsonl", texts_of(400, 1))
    project.build()
    counts = read_counts(project.root / COUNTS_FILE)
    n_bytes = pc.sum(pc.binary_length(counts["pretoken"])).as_py()
    project.set(train_vocab__vocab_size=280)
    params = load_params(project.root / "params.yaml")
    plan = make_plan(project.root, params, SampleSize(0, 60_000, 60_000))
    assert plan.ranges["distinct"] == exactly(counts.num_rows)
    counted = find_work(project.root, params).counted
    assert counted is not None and n_bytes <= counted.n_bytes < n_bytes + 300  # heads of pages


@pytest.mark.parametrize("count_min", [1, 2])
def test_the_distinct_pretokens_of_the_sample_are_at_least_in_the_corpus(project: Project, count_min: int) -> None:
    project.write("old.jsonl", texts_of(400, 1))
    project.set(count__count_min=count_min)  # above 1, some of them are left out
    plan = plan_of(project)
    assert (plan.ranges["distinct"].low == plan.ranges["distinct"].point) == (count_min == 1)


@pytest.mark.slow
def test_tokens_are_less_sure_where_another_tokenizer_will_be_learned(project: Project) -> None:
    project.build()
    project.write("new.jsonl", texts_of(3000, 2))
    learned = plan_of(project, work_bytes=500_000).ranges["tokens"]
    for stage in ("count", "train-vocab"):
        project.dvc("freeze", stage)
    kept = plan_of(project, work_bytes=500_000).ranges["tokens"]
    assert (learned.high - learned.low) / learned.point > (kept.high - kept.low) / kept.point + 0.03


def test_a_counted_corpus_is_known_before_there_is_a_dataset(project: Project) -> None:
    texts = texts_of(400, 1)
    project.write("old.jsonl", texts)
    project.build("--only", "count")
    assert plan_of(project, read_bytes=60_000, work_bytes=60_000).ranges["documents"] == exactly(406)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_text_that_is_refused_is_named_by_file_and_row_wherever_the_sample_enters(
    project: Project, suffix: str
) -> None:
    texts = ["plain words of a text"] * 3000 + ["one <|endoftext|> here"] * 3000
    path = project.write("z.jsonl", texts)
    path.write_text("\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    if suffix == ".parquet":
        pq.write_table(
            pa.table({"id": list(map(str, range(6000))), "text": texts}), path.with_suffix(suffix), row_group_size=100
        )
        path.unlink()
    project.set(encode__special_tokens_in_text="reject")
    for name in ("a.jsonl", "b.jsonl"):
        (project.root / "data/raw" / name).unlink()
    with pytest.raises(SpecialTokenError) as raised:
        plan_of(project, seed=1, read_bytes=1000, work_bytes=1000)
    name, row = str(raised.value).split(":")[0].split(", row ")
    assert name == f"data/raw/z{suffix}"
    assert int(row) >= 3000
    assert int(row) < 6000


def test_a_bad_document_has_its_line_in_the_file_wherever_the_sample_enters(project: Project) -> None:
    path = project.write("z.jsonl", ["plain words of a text"] * 6000)
    lines = path.read_text(encoding="utf-8").splitlines()
    for at in range(2000, 6000, 20):
        lines[at] = json.dumps({"id": f"bad {at + 1}", "text": 1})
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(CorpusError) as raised:
        plan_of(project, read_bytes=1000, work_bytes=1000)
    line = int(re.findall(r"z\.jsonl, line (\d+)", str(raised.value))[0])
    assert line % 20 == 1
    assert line > 1


def test_seconds_and_memory_are_those_of_the_last_build_with_the_same_parameters(project: Project) -> None:
    project.build()
    rates = project.root / ".tokenmill/rates.json"
    kept = json.loads(rates.read_bytes())
    assert sorted(kept) == ["count", "encode", "train-vocab", "validate"]
    assert kept["encode"]["n_bytes"] == kept["count"]["n_bytes"] > 0
    peaks = {"count": 1e8, "train-vocab": 2e8, "encode": 4e8, "validate": 3e8}
    kept = {name: {**one, "seconds": 1000.0, "peak_bytes": peaks[name]} for name, one in kept.items()}
    rates.write_text(json.dumps(kept))
    project.write("a.jsonl", ["other words than those that it had before"])
    found = plan_of(project).ranges
    assert found["peak_memory_bytes"] == Estimate(3e8, 4e8, 5e8)
    assert 500 < found["seconds encode"].point < 2000
    project.write("b.jsonl", texts_of(100, 1))  # much more than the last build did
    assert plan_of(project).ranges["seconds encode"].point < 100
    (project.root / "data/raw/b.jsonl").unlink()
    project.set(encode__end_of_document=None)
    assert plan_of(project).ranges["seconds encode"].point < 100


def test_a_vocabulary_from_the_unit_store_says_nothing_of_how_long_it_takes_to_learn(project: Project) -> None:
    params = load_params(project.root / "params.yaml")
    one = StageSummary("train-vocab", "run", text_mb=5.0, seconds=60.0, peak_mb=100.0)
    keep_rates(project.root, params, [one])
    keep_rates(project.root, params, [dataclasses.replace(one, seconds=0.1)])
    assert read_rates(project.root, params)["train-vocab"].seconds == 60
    keep_rates(project.root, params, [dataclasses.replace(one, text_mb=6.0, seconds=70.0)])
    assert read_rates(project.root, params)["train-vocab"].seconds == 70


def test_an_interrupted_build_leaves_the_rest(project: Project) -> None:
    project.build("--only", "count")
    plan = plan_of(project)
    assert work(plan)["count"] == (0, [])
    assert work(plan)["encode"] == (2, ["never built"])
    shutil.rmtree(project.root / "data/counts")
    (project.root / "dvc.lock").unlink()
    assert work(plan_of(project))["count"] == (0, ["never built"])  # its units are in the unit store


def test_a_taken_tokenizer_is_the_one_of_the_estimate(new_project: Callable[[str], Project], tmp_path: Path) -> None:
    maker, user = new_project("maker"), new_project("user")
    maker.build()
    shutil.copytree(maker.root / "data/tokenizer", tmp_path / "taken")
    path = user.root / "params.yaml"
    text = path.read_text(encoding="utf-8")
    assert "tokenizer: null" in text or "tokenizer:\n" in text
    path.write_text(text.replace("tokenizer: null", "tokenizer: {from: ../taken}"), encoding="utf-8")
    assert user.cli("pin").returncode == 0
    ranges = plan_of(user).ranges
    user.build()
    n_tokens = json.loads((user.root / "data/tokens/manifest.json").read_bytes())["n_tokens"]
    assert ranges["tokens"] == exactly(n_tokens)


def ranges(**n_bytes: float) -> dict[str, Estimate]:
    names = ("disk_bytes", "dvc_cache_bytes", "spill_bytes", "peak_memory_bytes")
    return {name: Estimate(0, 0, n_bytes.get(name, 0)) for name in names}


def test_what_is_shuffled_needs_room_once_and_on_the_projects_disk(tmp_path: Path) -> None:
    ranges = {"disk_bytes": exactly(100), "dvc_cache_bytes": exactly(30), "spill_bytes": exactly(7)}
    costs = Costs(ranges, learned_bytes=0, spilled_bytes=5, buckets_bytes=7, refused=[])
    [disk] = _disks(tmp_path, None, tmp_path / "cache", costs)
    assert (disk.name, disk.needed_bytes) == ("the project's disk", 100 + 5 + 7)


def test_a_build_without_room_is_refused() -> None:
    memory = Memory(1000, 256, 2)
    small = Disk("the project's disk", 2e9, 10**9)
    assert list(refusals(ranges(), 0.0, memory, [Disk("one", 1.0, 2)], 10**9)) == []
    [reason] = refusals(ranges(), 0.0, memory, [small], 10**9)
    assert reason.startswith("the project's disk has 1.0 GB free; the build may need 2.0 GB.")
    [reason] = refusals(ranges(peak_memory_bytes=9e8), 0.0, memory, [], 8 * 10**8)
    assert reason.startswith("the machine has 800.0 MB of memory; the build may need 900.0 MB.")
    [reason] = refusals(ranges(), 1e8, memory, [], 10**9)
    assert reason.startswith("run.memory_mb_max allows 1.0 GB; learning the vocabulary may need 3.5 GB.")


def test_a_plan_that_is_refused_ends_with_one(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.builders.teams import cli

    monkeypatch.setattr("tokenmill.features.plan.planning.machine_bytes", lambda: 1000)
    done = cli(project, "plan")
    assert done.returncode == 1
    assert "Do not build yet: the machine has 1.0 kB of memory" in done.stdout
    assert json.loads(cli(project, "plan", "--json").stdout)["result"]["refused"]


def test_a_plan_beside_an_outcome_says_what_is_in_its_range() -> None:
    plan = {"quantities": {name: {"low": 1, "point": 2, "high": 3} for name in ("tokens", "documents", "seconds")}}
    rows = compare(plan, {"tokens": 3, "documents": 4})
    assert [(row.quantity, row.found, row.is_inside) for row in rows] == [
        ("tokens", 3, True),
        ("documents", 4, False),
        ("seconds", None, None),
    ]


@pytest.mark.parametrize(("found", "words"), [(2, "in range"), (4, "slower"), (0, "faster")])
def test_seconds_outside_their_range_are_not_called_wrong(found: float, words: str) -> None:
    plan = {"quantities": {name: {"low": 1, "point": 2, "high": 3} for name in ("seconds", "seconds count", "tokens")}}
    rows = shown(compare(plan, {"seconds": found, "seconds count": found, "tokens": 4}))
    assert [row[-1] for row in rows] == [words, words, "outside"]


def test_a_rounded_number_is_in_its_range() -> None:
    exact = {
        "quantities": {"tokens": {"low": 7489.000000000001, "point": 7489.000000000001, "high": 7489.000000000001}}
    }
    assert [row.is_inside for row in compare(exact, {"tokens": 7489})] == [True]
    assert [row.is_inside for row in compare(exact, {"tokens": 7490})] == [False]


def test_the_database_of_prefect_is_not_among_the_bytes_of_a_build(tmp_path: Path) -> None:
    for name in ("prefect/prefect.db", "units/ab/abc/tokens.parquet"):
        path = tmp_path / ".tokenmill" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(100_000))
    assert 100_000 <= disk_used(tmp_path, ".dvc/cache") < 150_000
