"""Projects with a sample for each trained message: its dataset, its files, and what finds its way back to a conversation."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.builders.talks import Talk, hold_talks, write_talks
from tests.builders.teams import build, cli
from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.chat.answers import AnswerCounts
from tokenmill.dataset.manifest import Manifest, read_manifest, write_manifest
from tokenmill.features.view.dataset_view import Asked, DatasetView
from tokenmill_reader.regular_files import sha256_file

EACH = {"template": "chatml", "turns": "each"}
START, END = "<|im_start|>", "<|im_end|>\n"
FIRST = f"{START}system\nbe brief{END}{START}user\ndog?{END}{START}assistant\nlog <|im_end|> 🙂{END}"
SECOND = f"{FIRST}{START}user\nand?{END}{START}assistant\nno{END}"


@pytest.fixture
def talks(project: Project) -> Project:
    """Conversations of one, two and one answers."""
    hold_talks(project).set(encode__chat=EACH)
    return project


def manifest_of(project: Project) -> Manifest:
    return read_manifest(project.root / "data/tokens")


def rows(project: Project) -> list[dict[str, Any]]:
    files = [project.root / "data/tokens" / shard.name for shard in manifest_of(project).shards]
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def index(project: Project) -> list[dict[str, Any]]:
    return pq.read_table(project.root / "data/tables/documents.parquet").to_pylist()


def many_talks(project: Project, n: int, n_answers: int) -> None:
    """Writes a shard of conversations that are all different."""
    talks: list[Talk] = []
    for i in range(n):
        turns = [[("user", f"the cat {i}"), ("assistant", f"dog {i} {k}")] for k in range(n_answers)]
        talks.append([message for turn in turns for message in turn])
    write_talks(project, "c.jsonl", talks)


@pytest.mark.slow
def test_every_trained_message_is_a_row_that_verify_and_locate_know_by_its_conversation(talks: Project) -> None:
    build(talks)
    tokenizer, found, places = Tokenizer.load(talks.root / "data/tokenizer"), rows(talks), index(talks)
    assert [row["id"] for row in found] == ["a.jsonl-0", "a.jsonl-1", "a.jsonl-1", "b.jsonl-0"]
    assert [tokenizer.decode(row["input_ids"]) for row in found[1:3]] == [FIRST, SECOND]
    heads = [row["head"] for row in DatasetView(talks.root / "data/tokens").items(Asked({}))["rows"]]
    assert [head.split(" · ")[-1] for head in heads[1:3]] == ["messages 1 to 3", "messages 1 to 5"]
    trained = [[id for id, one in zip(row["input_ids"], row["loss_mask"], strict=True) if one] for row in found]
    assert [tokenizer.decode(ids) for ids in trained[1:3]] == ["log <|im_end|> 🙂<|im_end|>", "no<|im_end|>"]
    assert [(row["row"], row["n_messages"], row["n_trained"]) for row in places] == [
        (0, 2, len(trained[0])),
        (1, 3, len(trained[1])),
        (1, 5, len(trained[2])),
        (0, 2, len(trained[3])),
    ]
    assert found[1]["sha256"] == found[2]["sha256"] == places[1]["sha256"] == places[2]["sha256"]
    manifest = manifest_of(talks)
    assert manifest.n_documents == 4 and manifest.chat is not None and manifest.chat.turns == "each"
    of_inputs = [(one.name, one.n_documents, one.n_samples) for shard in manifest.shards for one in shard.rows]
    assert of_inputs == [("data/raw/a.jsonl", 2, 3), ("data/raw/b.jsonl", 1, 1)]
    for options in ([], ["--no-source"]):
        done = cli(talks, "verify", *options)
        assert done.returncode == 0, done.stdout
    done = cli(talks, "locate", "--id", "a.jsonl-1")
    assert "2 documents" in done.stdout and "row 1, 3 messages" in done.stdout and "row 1, 5 messages" in done.stdout
    done = cli(talks, "locate", "--token", str(places[2]["first_token"] + len(found[2]["input_ids"]) - 2))
    assert "document  a.jsonl-1" in done.stdout and "messages  5" in done.stdout and "trained   yes" in done.stdout
    assert f"turns each ({len(found[1]['input_ids'])} tokens in samples that" in cli(talks, "info").stdout
    assert "a document for each trained message" in (talks.root / "data/tokens/README.md").read_text()
    assert set(talks.actions(build(talks)).values()) == {"up to date"}
    assert cli(talks, "status").returncode == 0


def test_the_report_counts_samples_conversations_and_repeated_tokens(talks: Project) -> None:
    talks.set(run__report_page=True)
    said = build(talks).stderr
    n_tokens, n_repeated = sum(len(row["input_ids"]) for row in rows(talks)), len(rows(talks)[1]["input_ids"])
    assert f"encode: 4 samples; {n_repeated} of {n_tokens} tokens are in samples that a longer one" in said
    report = json.loads((talks.root / "data/report/report.json").read_text())["conversations"]
    assert (report["turns"], report["conversations"], report["samples_made"]) == ("each", 3, 4)
    assert report["tokens_repeated"] == n_repeated
    assert "4 samples of 3 conversations" in (talks.root / "data/report/report.html").read_text()


def test_verify_counts_repeated_tokens_again(talks: Project) -> None:
    build(talks)
    tokens = talks.root / "data/tokens"
    manifest = read_manifest(tokens)
    assert manifest.chat is not None
    write_manifest(manifest.model_copy(update={"chat": manifest.chat.model_copy(update={"n_repeated": 7})}), tokens)
    done = cli(talks, "verify")
    assert done.returncode != 0 and "chat: n_repeated is 7, but its files have" in done.stdout + done.stderr


@pytest.mark.slow
def test_plan_and_doctor_look_at_samples(talks: Project) -> None:
    assert cli(talks, "doctor").returncode == 0
    assert cli(talks, "plan").returncode == 0
    build(talks)
    done = cli(talks, "plan", "--outcome", "--json")
    measured = {row["quantity"]: row["is_inside"] for row in json.loads(done.stdout)["result"]["rows"]}
    assert (measured["documents"], measured["tokens"], measured["text_bytes"]) == (True, True, True)
    template = "{% if messages[-1].content == 'no' %}{{ raise_exception('no no') }}{% endif %}"
    template += "{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}"
    (talks.root / "odd.jinja").write_text(template)
    talks.depend("odd.jinja", "train-vocab", "encode")
    talks.set(encode__chat=EACH | {"template": "odd.jinja"})
    for command in ("plan", "doctor", "build"):
        done = cli(talks, command)
        assert done.returncode != 0 and "data/raw/a.jsonl, row 1: " in done.stdout + done.stderr
        assert "no no" in done.stdout + done.stderr


@pytest.mark.slow
def test_conversations_of_one_answer_make_the_same_files_either_way(talks: Project) -> None:
    (talks.root / "data/raw/a.jsonl").unlink()
    many_talks(talks, 40, 1)
    files = {}
    talks.set(encode__formats=["parquet", "arrow"], encode__splits={"train": 0.5, "validation": 0.5})
    talks.set(encode__shuffle={"seed": 0}, encode__pack={"length": 64, "mode": "best_fit"})
    for turns in ("each", "together"):
        talks.set(encode__chat=EACH | {"turns": turns})
        build(talks)
        made = talks.outputs()
        files[turns] = {name: made[name] for name in made if name.startswith(("data/tokens/", "data/tables/"))}
        del files[turns]["data/tokens/README.md"]  # it has the digest of the manifest
        manifest = json.loads(files[turns].pop("data/tokens/manifest.json"))
        assert ("turns" in manifest["chat"], "n_samples" in manifest["shards"][0]["rows"][0]) == (turns == "each",) * 2
    assert files["each"] == files["together"]


def test_the_default_decides_nothing(talks: Project) -> None:
    talks.set(encode__chat={"template": "chatml"})
    build(talks)
    before, manifest = talks.outputs(), manifest_of(talks)
    talks.set(encode__chat=EACH | {"turns": "together"})
    build(talks)
    after = talks.outputs()
    assert [shard.unit for shard in manifest_of(talks).shards] == [shard.unit for shard in manifest.shards]
    assert {name for name in before if before[name] != after.get(name)} <= {"data/tokenizer/provenance.json"}
    talks.set(encode__chat=EACH | {"mask": "all"})
    done = cli(talks, "build")
    assert done.returncode == 2 and "encode.chat.turns: found 'each' with mask: all; allowed: 'together'" in done.stderr


@pytest.mark.slow
def test_reasoning_that_together_leaves_out_is_trained_with_each(talks: Project) -> None:
    turns = [{"role": "assistant", "content": "dog", "reasoning_content": f"as {i}"} for i in range(3)]
    messages = [message for turn in turns for message in ({"role": "user", "content": "cat"}, turn)]
    (talks.root / "data/raw/c.jsonl").write_text(json.dumps({"id": "c", "messages": messages}) + "\n")
    talks.set(encode__chat={"template": "qwen3"})
    done = build(talks)
    assert "leaves out the reasoning of 2 trained messages" in done.stderr
    assert "encode.chat.turns: each trains it" in done.stderr
    talks.set(encode__chat={"template": "qwen3", "turns": "each"})
    assert "leaves out" not in build(talks).stderr
    chat = manifest_of(talks).chat
    assert chat is not None and chat.answers == AnswerCounts(n_answers=7)


def test_samples_of_a_conversation_stay_in_one_split_and_are_repeated_together(talks: Project) -> None:
    many_talks(talks, 60, 3)
    talks.set(encode__splits={"train": 0.5, "validation": 0.5}, encode__shuffle={"seed": 0})
    talks.set(sources={"all": {"glob": "data/raw/*", "epochs": 1.5}})
    build(talks)
    found: dict[str, Counter[str]] = {}
    for split in ("train", "validation"):
        files = (talks.root / "data/tokens/parquet" / split).glob("*.parquet")
        found[split] = Counter(id for path in files for id in pq.read_table(path, partitioning=None)["id"].to_pylist())
    assert len(found["train"] | found["validation"]) == 63 and not found["train"] & found["validation"]
    n_samples = Counter(row["id"] for row in index(talks))
    assert {n // n_samples[id] for id, n in found["train"].items()} == {1, 2}
    assert all(n % n_samples[id] == 0 for id, n in found["train"].items())
    assert all(n == n_samples[id] for id, n in found["validation"].items())
    assert cli(talks, "verify").returncode == 0


def test_all_samples_of_a_dropped_conversation_are_left_out(talks: Project) -> None:
    (talks.root / "drop.csv").write_text("id,digest,reason\na.jsonl-1,,takedown\n")
    talks.set_drop("drop.csv")
    build(talks)
    assert [row["id"] for row in rows(talks)] == ["a.jsonl-0", "b.jsonl-0"]
    assert manifest_of(talks).n_dropped == {"takedown": 1}
    assert cli(talks, "verify").returncode == 0


def test_the_limit_of_bad_documents_counts_conversations(talks: Project) -> None:
    many_talks(talks, 1, 20)
    with (talks.root / "data/raw/b.jsonl").open("a") as file:
        file.write('{"id": "x", "messages": []}\n')
    talks.set(source__on_bad_document="quarantine", source__bad_documents_max=0.1)
    done = cli(talks, "build")
    assert done.returncode == 2 and "1 of 5 documents are bad" in done.stderr
    talks.set(source__bad_documents_max=0.25)
    build(talks)
    assert manifest_of(talks).n_bad == 1 and len(rows(talks)) == 24
    assert cli(talks, "verify").returncode == 0


def test_units_of_samples_are_taken_over_from_a_dataset(talks: Project) -> None:
    talks.set(source__unit_bytes_min=0)
    build(talks)
    before = talks.outputs()
    shutil.rmtree(talks.root / ".tokenmill/units")
    (talks.root / "kept").mkdir()
    for path in (talks.root / "data/tokenizer").iterdir():
        shutil.copy(path, talks.root / "kept")
    write_talks(talks, "c.jsonl", [[("user", "the mat"), ("assistant", "the log")]])
    talks.set(tokenizer={"from": "kept"})
    done = build(talks)
    assert "encode: 2 units taken over" in done.stderr
    after = talks.outputs()
    assert all(after[name] == before[name] for name in before if name.startswith("data/tokens/documents/"))
    assert cli(talks, "verify").returncode == 0


@pytest.mark.parametrize(
    ("change", "words"), [("mask", "row 1: loss_mask from token"), ("rows", "n_documents of its rows")]
)
def test_verify_finds_a_changed_sample_though_the_manifest_fits(talks: Project, change: str, words: str) -> None:
    build(talks)
    tokens, manifest = talks.root / "data/tokens", manifest_of(talks)
    shard = manifest.shards[0]
    path = tokens / shard.name
    if change == "mask":
        table = pq.read_table(path, partitioning=None)
        columns = table.to_pydict()
        mask = columns["loss_mask"][2]
        at = mask.index(1)
        mask[at - 1], mask[at] = 1, 0  # as many as before
        path.unlink()
        pq.write_table(table.from_pydict(columns, table.schema), path)
        update: dict[str, Any] = {"n_bytes": path.stat().st_size, "sha256": sha256_file(path)}
    else:
        [first, *rest] = shard.rows[::-1]
        update = {"rows": [*rest[::-1], first.model_copy(update={"n_documents": first.n_documents + 1})]}
    changed = manifest.model_copy(update={"shards": [shard.model_copy(update=update), *manifest.shards[1:]]})
    (tokens / "manifest.json").unlink()
    write_manifest(changed, tokens)
    done = cli(talks, "verify", "--no-tables")
    assert done.returncode == 1 and f"{Path(shard.name).name}: " in done.stdout and words in done.stdout, done.stdout
