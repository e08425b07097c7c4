"""The report shows conversations with what of each answer is trained, as the dataset's files have it."""

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.builders.talks import hold_talks
from tests.builders.teams import build, cli
from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.dataset.manifest import read_manifest

CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "mat"}}}
THINKING = [
    {"role": "user", "content": "where?"},
    {"role": "assistant", "content": "", "reasoning_content": "the mat", "tool_calls": [CALL]},
    {"role": "tool", "content": "cat"},
    {"role": "assistant", "content": "on the mat", "reasoning_content": "it sat"},
]
PLAIN = [{"role": "user", "content": "the cat?"}, {"role": "assistant", "content": "the dog"}]


@pytest.fixture
def talks(project: Project) -> Project:
    """One shard, which `write` fills."""
    hold_talks(project).set(run__report_page=True)
    (project.root / "data/raw/b.jsonl").unlink()
    return project


def write(project: Project, *rows: Any) -> None:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (project.root / "data/raw/a.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def samples(project: Project) -> list[dict[str, Any]]:
    report = json.loads((project.root / "data/report/report.json").read_text())
    found: list[dict[str, Any]] = report["conversations"]["samples"]
    return found


def texts(sample: dict[str, Any]) -> dict[str | None, str]:
    """The text of each part of a sample that is one conversation."""
    found: dict[str | None, str] = {}
    for text, part in sample["sides"][0]["runs"]:
        found[part] = found.get(part, "") + text
    return found


@pytest.mark.slow
def test_trained_tokens_are_shown_by_the_part_of_an_answer_that_they_are(talks: Project) -> None:
    write(talks, {"id": "a", "messages": THINKING})
    talks.set(encode__chat={"template": "qwen3"})
    build(talks)
    [sample] = samples(talks)
    assert [part for _, part in sample["sides"][0]["runs"] if part] == [
        *("reasoning", "tool_calls", "end"),
        *("reasoning", "content", "end"),
    ]
    found = texts(sample)
    assert found["reasoning"].split() == ["<think>", "the", "mat", "</think>", "<think>", "it", "sat", "</think>"]
    assert found["content"] == "on the mat" and found["end"] == "<|im_end|><|im_end|>"
    assert found["tool_calls"].startswith("<tool_call>") and '"at": "mat"' in found["tool_calls"]
    page = (talks.root / "data/report/report.html").read_text()
    for part, words in (("reasoning", "reasoning"), ("tool_calls", "tool calls"), ("end", "end of the turn")):
        assert (
            f'<span class="say {part}">{words}</span>' in page and f'<bdi class="say {part}" title="{words}">' in page
        )
    talks.set(encode__chat={"template": "qwen3", "train": {"reasoning": False}})
    build(talks)
    without = texts(samples(talks)[0])
    assert "mask assistant without reasoning" in cli(talks, "info").stdout
    assert "reasoning" not in without and "<think>\nit sat" in without[None]
    assert {part: without[part] for part in ("content", "tool_calls", "end")} == {
        part: found[part] for part in ("content", "tool_calls", "end")
    }


@pytest.mark.parametrize("turns", ["together", "each"])
def test_samples_are_rows_of_the_files_though_documents_are_left_out(talks: Project, turns: str) -> None:
    good = [{"id": f"d{i}", "messages": [*PLAIN, *PLAIN, {"role": "user", "content": f"{i}"}]} for i in range(30)]
    write(talks, "no json", *good[:3], {"id": "bad", "messages": "none"}, *good[3:])
    (talks.root / "drop.csv").write_text("id,reason\nd1,old\nd4,old\n")
    talks.depend("drop.csv", "count", "encode", "validate")
    talks.set(source__on_bad_document="quarantine", source__drop="drop.csv", source__bad_documents_max=2)
    talks.set(encode__chat={"template": "chatml", "turns": turns})
    build(talks)
    tokenizer, tokens = Tokenizer.load(talks.root / "data/tokenizer"), talks.root / "data/tokens"
    [shard] = read_manifest(tokens).shards
    rows = pq.read_table(tokens / shard.name, partitioning=None).to_pylist()
    found = samples(talks)
    assert len(found) == 10 and len(rows) == 28 * (1 + (turns == "each"))
    for sample in found:
        row = rows[sample["row"]]
        [side] = sample["sides"]
        assert sample["id"] == row["id"] and sample["trained"] == sum(row["loss_mask"])
        assert "".join(text for text, _ in side["runs"]) == tokenizer.decode(row["input_ids"])
        assert {part for _, part in side["runs"]} == {None, "content", "end"}


def test_rejected_conversations_are_told_by_reason_with_the_first_row(talks: Project) -> None:
    good = [{"id": f"d{i}", "messages": PLAIN} for i in range(3)]
    write(talks, good[0], "no json", {"id": "b", "messages": "none"}, good[1], {"id": "c", "messages": "none"}, good[2])
    talks.set(source__on_bad_document="quarantine", source__bad_documents_max=3)
    build(talks)
    found = json.loads((talks.root / "data/report/report.json").read_text())["quarantine"]
    assert [(one["documents"], one["shard"], one["row"]) for one in found] == [
        (2, "data/raw/a.jsonl", 2),
        (1, "data/raw/a.jsonl", 1),
    ]
    page = (talks.root / "data/report/report.html").read_text()
    assert "<tr><td>kept</td><td>3</td></tr>" in page and "<tr><td>in the quarantine</td><td>3, " in page
    assert "<td>data/raw/a.jsonl, row 2</td>" in page


def test_both_sides_of_a_pair_are_shown(talks: Project) -> None:
    write(talks, {"id": "p", "prompt": "the cat?", "chosen": "it sat", "rejected": "the dog"})
    talks.set(
        source__messages_column=None,
        source__pair={name: name for name in ("prompt", "chosen", "rejected")},
        encode__chat={"template": "chatml", "turns": "pair"},
        encode__pack={"length": 64, "mode": "none", "long": "cut"},
        encode__formats=["trl_dpo"],
    )
    build(talks)
    [sample] = samples(talks)
    prompt = "<|im_start|>user\nthe cat?<|im_end|>\n<|im_start|>assistant\n"
    assert [(side["name"], side["runs"]) for side in sample["sides"]] == [
        (name, [[prompt, None], [answer, "content"], ["<|im_end|>", "end"], ["\n", None]])
        for name, answer in (("chosen", "it sat"), ("rejected", "the dog"))
    ]
    page = (talks.root / "data/report/report.html").read_text()
    assert "<b>chosen</b>" in page and "<b>rejected</b>" in page


def test_a_template_that_does_not_tell_parts_shows_trained_tokens_without_them(talks: Project) -> None:
    write(talks, {"id": "a", "messages": PLAIN})
    (talks.root / "odd.jinja").write_text(
        "{% for m in messages %}{{ m.role }}{% generation %}{% if m.role == 'assistant' %}"
        "{{ 1 if m.content < 'u' else 2 }}{{ m.content }}<|im_end|>{% endif %}{% endgeneration %}{% endfor %}"
    )
    talks.depend("odd.jinja", "train-vocab", "encode")
    talks.set(encode__chat={"template": "odd.jinja"})
    build(talks)
    assert texts(samples(talks)[0])["other"] == "1the dog<|im_end|>"
