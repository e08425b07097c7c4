"""Projects of preference pairs: one row for a pair, what packing makes of it, and what is refused."""

import json
import string
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from tests.builders.corpora import weigh
from tests.builders.talks import hold_talks, messages
from tests.builders.teams import build, cli
from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.dataset.manifest import read_manifest

PACK = {"length": 38, "mode": "none", "long": "cut"}
PAIRS = [
    {"prompt": "the cat?", "chosen": "it sat", "rejected": "the dog"},
    {"prompt": "and the dog?", "chosen": "on the log", "rejected": "on the log, on the log, on the log and on the log"},
    {"prompt": "log?", "chosen": "no <|im_end|> 🙂", "rejected": "no"},
]
TOO_LONG = {"prompt": string.ascii_letters, "chosen": "a", "rejected": "b"}  # the prompt alone is longer


def write(project: Project, *pairs: dict[str, Any]) -> None:
    lines = [json.dumps({"id": f"p{i}", **one}) + "\n" for i, one in enumerate(pairs)]
    (project.root / "data/raw/a.jsonl").write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def pairs(project: Project) -> Project:
    """Three pairs, of which the second has a long answer."""
    hold_talks(project)
    (project.root / "data/raw/b.jsonl").unlink()
    write(project, *PAIRS)
    columns = {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}
    project.set(
        source__messages_column=None,
        source__pair=columns,
        encode__chat={"template": "chatml", "turns": "pair", "cut_max": 1},
        encode__pack=PACK,
        encode__formats=["trl_dpo", "arrow"],
    )
    return project


def sides(prompt: str, *answers: str) -> str:
    start, end = "<|im_start|>", "<|im_end|>\n"
    return "".join(f"{start}user\n{prompt}{end}{start}assistant\n{answer}{end}" for answer in answers)


def of_trl(project: Project) -> list[dict[str, list[int]]]:
    """The rows that TRL reads."""
    files = sorted((project.root / "data/tokens/trl_dpo").rglob("*.arrow"))
    return [row for file in files for row in pa.ipc.open_stream(file.read_bytes()).read_all().to_pylist()]


def rows(project: Project) -> list[dict[str, Any]]:
    tokens = project.root / "data/tokens"
    files = [tokens / shard.name for shard in read_manifest(tokens).shards]
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def test_a_pair_is_one_row_that_trl_reads_as_prompt_and_answers(pairs: Project) -> None:
    build(pairs)
    tokenizer, found, dpo = Tokenizer.load(pairs.root / "data/tokenizer"), rows(pairs), of_trl(pairs)
    assert [tokenizer.decode(row["input_ids"]) for row in found] == [
        sides(one["prompt"], one["chosen"], one["rejected"]) for one in PAIRS
    ]
    shown = [[tokenizer.decode(row[name]) for name in ("prompt_ids", "chosen_ids", "rejected_ids")] for row in dpo]
    assert shown[0] == [
        "<|im_start|>user\nthe cat?<|im_end|>\n<|im_start|>assistant\n",
        "it sat<|im_end|>",
        "the dog<|im_end|>",
    ]
    assert shown[2][1:] == ["no <|im_end|> 🙂<|im_end|>", "no<|im_end|>"]
    assert shown[1][1] == "on the log<|im_end|>" and not shown[1][2].endswith("<|im_end|>")
    assert len(dpo[1]["prompt_ids"] + dpo[1]["rejected_ids"]) == 38
    dataset = tokenmill.open(pairs.root / "data/tokens", format="arrow")
    assert [list(one) for one in dataset] == [
        [*row["prompt_ids"], *row["chosen_ids"], *row["prompt_ids"], *row["rejected_ids"]] for row in dpo
    ]
    packed = read_manifest(pairs.root / "data/tokens").packed[""]
    assert (packed["n_sequences"], packed["n_cut_answers"], packed["n_equal_pairs"]) == (3, 1, 0)
    for options in ([], ["--no-source"]):
        done = cli(pairs, "verify", *options)
        assert done.returncode == 0, done.stdout
    assert "turns pair" in cli(pairs, "info").stdout
    assert "p1" in cli(pairs, "locate", "--id", "p1").stdout
    assert set(pairs.actions(build(pairs)).values()) == {"up to date"}


def test_a_cut_never_makes_the_sides_equal(pairs: Project) -> None:
    pairs.set(encode__chat={"template": "chatml", "turns": "pair", "cut_max": 2})
    write(pairs, *PAIRS, TOO_LONG)
    build(pairs)
    packed = read_manifest(pairs.root / "data/tokens").packed[""]
    assert (packed["n_sequences"], packed["n_cut_answers"], packed["n_equal_pairs"]) == (3, 2, 1)
    assert packed["n_dropped_documents"] == 1 and len(of_trl(pairs)) == 3
    assert "dropped documents: 1; dropped tokens: 130; cut answers: 2; equal pairs: 1" in cli(pairs, "info").stdout
    assert all(
        row["chosen_ids"] != row["rejected_ids"] and row["chosen_ids"] and row["rejected_ids"] for row in of_trl(pairs)
    )
    assert cli(pairs, "verify").returncode == 0
    pairs.set(encode__pack=PACK | {"long": "drop"})
    build(pairs)
    packed = read_manifest(pairs.root / "data/tokens").packed[""]
    assert (packed["n_sequences"], packed["n_cut_answers"], packed["n_dropped_documents"]) == (2, 2, 2)
    assert cli(pairs, "verify").returncode == 0
    pairs.set(encode__chat={"template": "chatml", "turns": "pair"})
    done = cli(pairs, "build")
    assert done.returncode == 2 and "2 of 4 pairs lose trained tokens" in done.stderr


@pytest.mark.slow
def test_both_sides_of_a_pair_have_its_source_in_a_shuffled_mixture(pairs: Project) -> None:
    (pairs.root / "data/raw/a.jsonl").unlink()
    for source in ("cat", "dog"):
        (pairs.root / "data/raw" / source).mkdir()
        some = ({"id": i, "prompt": f"{source}{i}", "chosen": "it sat", "rejected": "no"} for i in range(9))
        (pairs.root / f"data/raw/{source}/a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in some))
    weigh(pairs, cat={"epochs": 2}, dog={})
    pairs.set(encode__shuffle={"seed": 0}, source__id_column=None)
    build(pairs)
    tokenizer, dpo = Tokenizer.load(pairs.root / "data/tokenizer"), of_trl(pairs)
    dataset = tokenmill.open(pairs.root / "data/tokens", format="arrow")
    assert [one.name for one in dataset.manifest.sources] == ["cat", "dog"]
    for i, row in enumerate(dpo):
        source = ["cat", "dog"].index(tokenizer.decode(row["prompt_ids"]).split("user\n")[1][:3])
        assert row["source_ids"] == dataset.source_ids(i).tolist() == [source, source]
    assert len(dpo) == 27 and len({row["source_ids"][0] for row in dpo[:9]}) == 2
    done = cli(pairs, "verify")
    assert done.returncode == 0, done.stdout


def test_splits_and_a_shuffle_keep_pairs_whole(pairs: Project) -> None:
    write(pairs, *({"prompt": f"the cat {i}", "chosen": f"sat {i}", "rejected": f"dog {i}"} for i in range(40)))
    pairs.set(encode__splits={"train": 0.5, "test": 0.5}, encode__shuffle={"seed": 0})
    build(pairs)
    tokenizer = Tokenizer.load(pairs.root / "data/tokenizer")
    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    found = [
        [tokenizer.decode(row[name]).split("<|im_end|>")[0].split()[-1] for name in names] for row in of_trl(pairs)
    ]
    assert sorted(int(one[0]) for one in found) == list(range(40)) and all(len(set(one)) == 1 for one in found)
    assert cli(pairs, "verify").returncode == 0


def test_equal_and_empty_answers_are_bad_documents(pairs: Project) -> None:
    write(
        pairs,
        *PAIRS,
        {"prompt": "cat", "chosen": "dog", "rejected": " dog\n"},
        {"prompt": "cat", "chosen": "", "rejected": "a"},
    )
    done = cli(pairs, "build")
    assert done.returncode == 2
    assert "row 3" in done.stderr or "line 4" in done.stderr
    assert "chosen and rejected: expected two answers; found the same twice" in done.stderr
    assert "chosen: expected an answer; found an empty one" in done.stderr
    pairs.set(source__on_bad_document="quarantine", source__bad_documents_max=2)
    build(pairs)
    assert len(rows(pairs)) == 3 and read_manifest(pairs.root / "data/tokens").n_bad == 2
    pairs.set(source__bad_documents_max=1)
    assert cli(pairs, "build").returncode == 2


def test_pairs_that_only_the_template_makes_equal_are_left_out_within_a_limit(pairs: Project) -> None:
    (pairs.root / "chat.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content[:6] }}"
        "<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    )
    pairs.depend("chat.jinja", "train-vocab", "encode")
    chat = {"template": "chat.jinja", "turns": "pair"}
    write(pairs, *PAIRS, {"prompt": "cat", "chosen": "the log", "rejected": "the lot"})
    pairs.set(encode__chat=chat | {"cut_max": 1})
    done = cli(pairs, "build")
    assert done.returncode == 2
    assert "2 of 4 pairs lose trained tokens" in done.stderr
    assert "both answers in these:\n  data/raw/a.jsonl, row 1: " in done.stderr, done.stderr
    for pack, formats in ((PACK, ["trl_dpo", "arrow"]), (PACK | {"long": "drop"}, ["trl_dpo"]), (None, ["arrow"])):
        pairs.set(encode__chat=chat | {"cut_max": 2}, encode__pack=pack, encode__formats=formats)
        assert "the same tokens of both answers in 2 pairs" in build(pairs).stderr
        assert [sum(row["loss_mask"]) > 0 for row in rows(pairs)] == [True, False, True, False]
        assert cli(pairs, "verify").returncode == 0
        if pack is not None:
            packed = read_manifest(pairs.root / "data/tokens").packed[""]
            assert (packed["n_sequences"], packed["n_cut_answers"], packed["n_equal_pairs"]) == (2, 2, 2)
            assert len(of_trl(pairs)) == 2
    pairs.set(encode__chat=chat)
    assert "2 of 4 pairs lose trained tokens; encode.chat.cut_max allows 1 %." in cli(pairs, "build").stderr


def test_lists_of_messages_in_parquet_are_pairs_too(pairs: Project) -> None:
    texts = rows_of(pairs)
    (pairs.root / "data/raw/a.jsonl").unlink()
    table = [
        {
            "id": f"p{i}",
            **{name: messages([("user", one["prompt"]), ("assistant", one[name])]) for name in ("chosen", "rejected")},
        }
        for i, one in enumerate(PAIRS)
    ]
    pq.write_table(pa.Table.from_pylist(table), pairs.root / "data/raw/a.parquet")
    pairs.set(source__pair={"chosen": "chosen", "rejected": "rejected"})
    assert rows_of(pairs) == texts


def rows_of(project: Project) -> list[str]:
    build(project)
    tokenizer = Tokenizer.load(project.root / "data/tokenizer")
    return [tokenizer.decode(row["input_ids"]) for row in rows(project)]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"encode__chat": {"template": "chatml"}},
            "encode: found preference pairs (pair of source) with chat.turns: together; allowed: turns: pair",
        ),
        ({"encode__pack": PACK | {"mode": "best_fit"}}, "encode.chat: found turns: pair with pack: {mode: best_fit"),
        ({"encode__formats": ["megatron_sft"]}, "its readers would train the rejected answers of pairs, too"),
        ({"encode__pack": None}, "trl_dpo holds pairs of a largest length; set encode.pack"),
        ({"source__messages_column": "chosen"}, "source.pair: found together with messages_column 'chosen'"),
        ({"source__pair": {"chosen": "a", "rejected": "a"}}, "source.pair.rejected: found a column twice"),
        ({"encode__chat": {"template": "chatml", "turns": "pair", "mask": "all"}}, "found 'pair' with mask: all"),
    ],
)
def test_what_does_not_go_together_is_refused(pairs: Project, changed: dict[str, Any], words: str) -> None:
    done = cli(pairs.set(**changed) or pairs, "build")
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_a_sum_of_the_report_counts_pairs(pairs: Project) -> None:
    build(pairs)
    report = json.loads(Path(pairs.root / "data/report/report.json").read_text())["conversations"]
    assert report["n_answers"] == 6 and report["messages"] == [{"messages": 2, "conversations": 3}]
