"""Projects of conversations: what a build makes of them, what it makes again, and what it refuses."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

import tokenmill
from tests.builders.talks import TALKS, hold_talks, messages, write_talks
from tests.builders.teams import build, cli
from tests.conftest import Project
from tokenmill import Tokenizer
from tokenmill.chat.answers import AnswerCounts
from tokenmill.dataset.manifest import read_manifest, write_manifest
from tokenmill_reader.regular_files import sha256_file

PLAIN = (
    "{% for message in messages %}<|im_start|>{{ message.role }}|{{ '\\n' + message.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant|{{ '\\n' }}{% endif %}"
)


def put_in_place(project: Project, stage: str, key: str, others: list[str]) -> None:
    """Writes other keys in place of one in the params of a stage."""
    with project.edited("dvc.yaml") as pipeline:
        listed = pipeline["stages"][stage]["params"]
        place = listed.index(key)
        listed[place : place + 1] = others


@pytest.fixture
def talks(project: Project) -> Project:
    return hold_talks(project)


def rows(project: Project) -> dict[str, dict[str, Any]]:
    tokens = project.root / "data/tokens"
    files = [tokens / shard.name for shard in read_manifest(tokens).shards]
    return {row["id"]: row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()}


def trained(tokenizer: Tokenizer, row: dict[str, Any]) -> str:
    ids = [id for id, is_trained in zip(row["input_ids"], row["loss_mask"], strict=True) if is_trained]
    return tokenizer.decode(ids)


def test_prompts_end_where_an_answer_begins_and_are_filtered_by_length(talks: Project) -> None:
    for name in TALKS:
        write_talks(talks, name, [talk[:-1] for talk in TALKS[name]])
    pack = {"length": 60, "mode": "none", "long": "drop"}
    talks.set(encode__chat={"template": "chatml", "mask": "none"}, encode__pack=pack, encode__formats=["arrow"])
    build(talks)
    tokenizer, found = Tokenizer.load(talks.root / "data/tokenizer"), rows(talks)
    first = found["a.jsonl-0"]["input_ids"]
    prompt = "<|im_start|>user\nthe cat sat on the mat<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(first) == prompt and not any(found["a.jsonl-0"]["loss_mask"])
    kept = [row["input_ids"] for row in found.values() if len(row["input_ids"]) <= 60]
    dataset = tokenmill.open(talks.root / "data/tokens", format="arrow")
    assert 0 < len(kept) < 3 and [list(one) for one in dataset] == kept
    packed = read_manifest(talks.root / "data/tokens").packed[""]
    assert packed["n_dropped_documents"] == 3 - len(kept) and packed["n_cut_answers"] == 0
    done = cli(talks, "verify")
    assert done.returncode == 0, done.stdout
    talks.set(encode__pack=pack | {"long": "cut"})
    done = cli(talks, "build")
    assert done.returncode == 2
    assert (
        "encode.chat: found mask: none with pack: {mode: none, long: cut}; allowed: {mode: none, long: drop}"
        in done.stderr
    )


def test_conversations_become_ids_with_masks_that_verify_finds_right(talks: Project) -> None:
    build(talks)
    tokenizer = Tokenizer.load(talks.root / "data/tokenizer")
    found = rows(talks)
    assert list(found) == ["a.jsonl-0", "a.jsonl-1", "b.jsonl-0"]
    long = found["a.jsonl-1"]
    assert tokenizer.decode(long["input_ids"]) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\ndog?<|im_end|>\n"
        "<|im_start|>assistant\nlog <|im_end|> 🙂<|im_end|>\n"
        "<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\nno<|im_end|>\n"
    )
    assert trained(tokenizer, long) == "log <|im_end|> 🙂<|im_end|>no<|im_end|>"
    end = tokenizer.special_tokens["<|im_end|>"]
    assert long["input_ids"].count(end) == 5  # what a message says is text
    index = pq.read_table(talks.root / "data/tables/documents.parquet").to_pylist()
    assert [row["n_messages"] for row in index] == [2, 5, 2]
    assert [row["n_trained"] for row in index] == [sum(row["loss_mask"]) for row in found.values()]
    assert [row["sha256"] for row in index] == [row["sha256"] for row in found.values()]
    for options in ([], ["--no-source"]):
        done = cli(talks, "verify", *options)
        assert done.returncode == 0, done.stdout
    shown = cli(talks, "info").stdout
    assert "template chatml" in shown and "mask assistant" in shown
    last = read_manifest(talks.root / "data/tokens").n_tokens - 1
    assert "trained   no" in cli(talks, "locate", "--token", str(last)).stdout  # the line end behind the turn
    assert "trained   yes" in cli(talks, "locate", "--token", str(last - 1)).stdout
    (talks.root / "chatml").touch()  # a name is not taken for this file
    assert set(talks.actions(build(talks)).values()) == {"up to date"}
    digest = index[1]["sha256"].hex()
    assert "a.jsonl-1" in cli(talks, "locate", "--digest", digest).stdout


def test_a_parameter_that_an_earlier_dvc_yaml_lacks_is_asked_for_before_anything_is_built(talks: Project) -> None:
    put_in_place(talks, "train-vocab", "encode.chat", [])
    for command in ("build", "status", "doctor"):
        done = cli(talks, command)
        assert done.returncode == (1 if command == "doctor" else 2)
        assert "Add encode.chat to the params of train-vocab in dvc.yaml" in done.stdout + done.stderr
    put_in_place(talks, "train-vocab", "encode.end_of_document", ["encode.end_of_document", "encode.chat.template"])
    assert cli(talks, "status").returncode == 1  # one of its keys will do


@pytest.mark.slow
def test_a_changed_template_encodes_again_and_trains_nothing_again(talks: Project) -> None:
    template = talks.root / "chat.jinja"
    template.write_text(PLAIN)
    talks.set(encode__chat={"template": "chat.jinja"})
    done = cli(talks, "build")
    assert done.returncode == 2
    assert "encode.chat.template is chat.jinja, but it is not in the stage's deps" in done.stderr
    assert "Put chat.jinja into the deps of train-vocab, encode" in done.stderr
    talks.depend("chat.jinja", "train-vocab", "encode")
    build(talks)
    before = rows(talks)["a.jsonl-0"]["input_ids"]
    template.write_text(PLAIN.replace("|{{", ">{{").replace("|{{ '\\n' }}", ">{{ '\\n' }}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("tokenmill.stages.train_vocab_learn.learn")
        done = build(talks)
    actions = talks.actions(done)
    assert (actions["count"], actions["train-vocab"], actions["encode"]) == ("up to date", "run", "run")
    assert rows(talks)["a.jsonl-0"]["input_ids"] != before
    template.write_text(PLAIN)
    assert talks.actions(build(talks))["encode"] == "restored"
    assert rows(talks)["a.jsonl-0"]["input_ids"] == before


@pytest.mark.slow
def test_a_new_file_of_conversations_is_encoded_alone(talks: Project) -> None:
    talks.set(encode__formats=["megatron_sft"], encode__pack={"length": 64, "mode": "best_fit"})
    build(talks)
    talks.set(tokenizer={"from": "kept"})
    (talks.root / "data/tokenizer").rename(talks.root / "kept")
    build(talks)
    write_talks(talks, "c.jsonl", [[("user", "the mat"), ("assistant", "the log")]])
    done = build(talks, "-v")
    assert "encode: 1 of 3 units to do" in done.stderr
    assert cli(talks, "verify").returncode == 0


@pytest.mark.parametrize(
    ("template", "talk", "words"),
    [
        ("chatml", [("user", "the cat")], "none is trained with mask: assistant"),
        ("all.jinja", [("user", "the cat"), ("assistant", "sat")], "tokens are trained with mask: assistant, although"),
    ],
)
def test_a_dataset_whose_masks_are_all_alike_is_refused(
    talks: Project, template: str, talk: list[tuple[str, str]], words: str
) -> None:
    (talks.root / "all.jinja").write_text(
        "{% generation %}{% for message in messages %}{{ message.content }}{% endfor %}{% endgeneration %}"
    )
    talks.depend("all.jinja", "train-vocab", "encode")
    for name in TALKS:
        write_talks(talks, name, [talk])
    talks.set(encode__chat={"template": template})
    done = cli(talks, "build")
    assert done.returncode == 2 and words in done.stderr
    assert not (talks.root / "data/tokens").exists()
    talks.set(encode__chat={"template": template, "mask": "all"})
    build(talks)
    assert all(set(row["loss_mask"]) == {1} for row in rows(talks).values())


@pytest.mark.slow
def test_a_format_without_masks_takes_conversations_whose_tokens_are_all_trained(talks: Project) -> None:
    talks.set(encode__formats=["megatron"])
    done = cli(talks, "build")
    assert done.returncode == 2 and "megatron has no place for the loss mask" in done.stderr
    assert "or set encode.chat.mask: all if every token is to be trained" in done.stderr
    talks.set(encode__formats=["megatron", "llmc"], encode__chat={"template": "chatml", "mask": "all"})
    build(talks)
    assert cli(talks, "verify").returncode == 0
    found = tokenmill.open(talks.root / "data/tokens", format="megatron")
    assert [ids.tolist() for ids in found] == [row["input_ids"] for row in rows(talks).values()]
    left_out = [*messages([("user", "dog")]), {"role": "assistant", "content": "log", "weight": 0}]
    (talks.root / "data/raw/c.jsonl").write_text(json.dumps({"id": "c", "messages": left_out}) + "\n")
    done = cli(talks, "build")
    assert done.returncode == 2 and "encode.formats: megatron, llmc: the readers train every token, and " in done.stderr
    assert "choose parquet, arrow, datatrove, mds or olmo_sft" in done.stderr


@pytest.mark.slow
def test_olmo_core_gets_conversations_that_end_with_a_token_of_their_own(talks: Project) -> None:
    talks.set(encode__formats=["olmo_sft"], encode__splits={"train": 0.5, "test": 0.5})
    done = cli(talks, "build")
    assert (
        done.returncode == 2 and "a.jsonl, row " in done.stderr and "take a chat template that ends each" in done.stderr
    )
    (talks.root / "one_end.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }} {% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "{% if loop.last %}<|im_end|>{% endif %}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    talks.depend("one_end.jinja", "train-vocab", "encode")
    talks.set(encode__chat={"template": "one_end.jinja", "stop_token": "unchecked"})
    build(talks)
    assert cli(talks, "verify").returncode == 0
    folder = talks.root / "data/tokens/olmo_sft"
    end = Tokenizer.load(talks.root / "data/tokenizer").special_tokens["<|im_end|>"]
    found = []
    for path in sorted(folder.glob("*/token_ids_part_*.npy")):
        ids = np.fromfile(path, np.uint16)
        mask = np.fromfile(path.with_name(path.name.replace("token_ids", "labels_mask")), np.bool_)
        ends = (np.flatnonzero(ids == end) + 1).tolist()
        found += [(ids[a:b].tolist(), mask[a:b].astype(int).tolist()) for a, b in pairwise([0, *ends])]
    assert sorted(found) == sorted((row["input_ids"], row["loss_mask"]) for row in rows(talks).values())
    (path, *_) = folder.glob("*/labels_mask_part_00000.npy")
    changed = path.read_bytes()
    path.unlink()
    path.write_bytes(bytes([1 - changed[0]]) + changed[1:])
    said = cli(talks, "verify").stdout
    assert f"olmo_sft/{path.parent.name}/labels_mask_part_00000.npy: " in said
    assert "token_ids_part_00000.npy: item 0: loss_mask from 0 on: found [1" in said


@pytest.mark.slow
def test_conversations_that_lose_their_answer_are_counted_and_limited(talks: Project) -> None:
    long = [("user", "the cat sat on the mat and " * 20), ("assistant", "no")]
    write_talks(talks, "c.jsonl", [[("user", "dog"), ("assistant", "log")], long])
    pack = {"length": 120, "mode": "best_fit", "long": "cut"}
    talks.set(encode__pack=pack, encode__formats=["arrow"], encode__chat={"template": "chatml", "cut_max": 0})
    done = cli(talks, "build")
    assert done.returncode == 2
    assert "1 of 5 conversations lose trained tokens, because they are longer than 120 tokens" in done.stderr
    assert "data/raw/c.jsonl, row 1: " in done.stderr and "encode.chat.cut_max allows 0" in done.stderr
    talks.set(encode__pack=pack | {"long": "drop"})
    done = cli(talks, "build")
    assert done.returncode == 2 and "data/raw/c.jsonl, row 1: " in done.stderr
    talks.set(encode__pack=pack, encode__chat={"template": "chatml", "cut_max": 0.2})
    talks.set(sources={"all": {"glob": "data/raw/*", "epochs": 3.0}})  # repeats do not make it more
    build(talks)
    assert read_manifest(talks.root / "data/tokens").packed[""]["n_cut_answers"] == 3


def test_a_message_whose_rendering_is_no_beginning_of_the_whole_is_named(talks: Project) -> None:
    (talks.root / "odd.jinja").write_text(
        "{% for message in messages %}{{ message.role }}\n"
        "{{ message.content }}{% if messages | length == 3 %}!{% endif %}\n{% endfor %}"
    )
    talks.depend("odd.jinja", "train-vocab", "encode")
    talks.set(encode__chat={"template": "odd.jinja"})
    done = cli(talks, "build")
    assert done.returncode == 2
    assert "data/raw/a.jsonl, row 1: " in done.stderr and "message 2" in done.stderr, done.stderr


def _refuse_odd(talks: Project) -> None:
    """A template that refuses conversations which begin with "odd"."""
    template = "{% if messages[0].content == 'odd' %}{{ raise_exception('no odd one') }}{% endif %}" + PLAIN
    (talks.root / "chat.jinja").write_text(template, encoding="utf-8")
    talks.depend("chat.jinja", "train-vocab", "encode")
    talks.set(encode__chat={"template": "chat.jinja"})


@pytest.mark.parametrize("row", [3, 6, 9])
def test_a_refused_conversation_is_named_whatever_batch_it_is_in(talks: Project, row: int) -> None:
    _refuse_odd(talks)
    long = [("user", "cat " * 400_000), ("assistant", "and a dog")]  # three make a batch
    write_talks(talks, "c.jsonl", [long] * row + [[("user", "odd"), ("assistant", "no")]] + [long] * (9 - row))
    done = cli(talks, "build")
    assert done.returncode == 2
    assert f"error[TM305]: data/raw/c.jsonl, row {row}: the chat template refuses it: no odd one" in done.stderr


def test_a_plan_names_the_file_and_row_of_a_conversation_that_the_template_refuses(talks: Project) -> None:
    _refuse_odd(talks)
    plain = [("user", "a cat"), ("assistant", "and a dog")]
    write_talks(talks, "c.jsonl", [plain, plain, [("user", "odd"), ("assistant", "no")]])
    done = cli(talks, "plan")
    assert done.returncode == 2
    assert "error[TM305]: data/raw/c.jsonl, row 2: " in done.stderr
    assert "no odd one" in done.stderr


def test_a_plan_counts_the_tokens_and_the_text_of_the_template(talks: Project) -> None:
    assert cli(talks, "plan").returncode == 0
    build(talks)
    done = cli(talks, "plan", "--outcome", "--json")
    rows = {row["quantity"]: row["is_inside"] for row in json.loads(done.stdout)["result"]["rows"]}
    assert (rows["documents"], rows["tokens"], rows["text_bytes"]) == (True, True, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encode__chat": None}, "encode: found chat: null with conversations"),
        ({"source__messages_column": None}, "encode: found chat with documents that are texts"),
        ({"encode__end_of_document": "<|pad|>"}, "encode.chat: found together with end_of_document: '<|pad|>'"),
        ({"encode__special_tokens_in_text": "allow"}, "encode.chat: found together with special_tokens_in_text: allow"),
        ({"encode__chat": {"template": "chatlm"}}, "found 'chatlm'"),
        (
            {"encode__chat": {"template": "gemma"}},
            "gemma marks turns with <start_of_turn>, <end_of_turn>, which are not added tokens",
        ),
        ({"encode__chat": {"template": "tokenizer"}}, "the tokenizer has no chat template"),
        ({"encode__chat": {"template": "chatml", "mask": "user"}}, "encode.chat.mask: found 'user'"),
    ],
)
def test_what_does_not_go_with_conversations_is_told(talks: Project, changes: dict[str, Any], words: str) -> None:
    talks.set(**changes)
    done = cli(talks, "build")
    assert done.returncode == 2 and words in done.stderr, done.stderr


VARIABLES = (
    "{% if shout %}!{% endif %}{% for m in messages %}{{ bos_token }}{{ m.content }}<|im_end|>{{ end }}{% endfor %}"
)


def as_transformers_has_them(project: Project, masks: bool = True) -> AutoTokenizer:
    """Compares every row with `apply_chat_template` of the tokenizer's folder alone."""
    judge = AutoTokenizer.from_pretrained(project.root / "data/tokenizer")
    found = rows(project)
    for name, talk in ((f"plain-{i}", talk) for i, talk in enumerate(PLAIN_TALKS)):
        expected = judge.apply_chat_template(messages(talk), return_dict=True, return_assistant_tokens_mask=masks)
        assert found[name]["input_ids"] == expected["input_ids"]
        assert not masks or found[name]["loss_mask"] == expected["assistant_masks"]
    return judge


PLAIN_TALKS = [
    [("user", "dog?"), ("assistant", "naïve 東京"), ("user", "and?"), ("assistant", "no")],
    TALKS["a.jsonl"][0],
]


@pytest.mark.slow
def test_a_trained_tokenizer_has_the_template_of_its_conversations(talks: Project) -> None:
    write_talks(talks, "plain", PLAIN_TALKS)
    (talks.root / "data/raw/plain").rename(talks.root / "data/raw/a.jsonl")
    (talks.root / "data/raw/b.jsonl").unlink()
    talks.set(train_vocab__vocab_sizes=[270], train_vocab__pad_token="<|pad|>")
    build(talks)
    judge = as_transformers_has_them(talks)
    assert (judge.bos_token, judge.eos_token, judge.pad_token) == (None, "<|im_end|>", "<|pad|>")
    smaller = AutoTokenizer.from_pretrained(talks.root / "data/tokenizer/270")
    assert smaller.chat_template == judge.chat_template
    digest = Tokenizer.load(talks.root / "data/tokenizer").digest
    (talks.root / "chat.jinja").write_text("\n" + VARIABLES)
    talks.depend("chat.jinja", "train-vocab", "encode")
    variables = {"bos_token": "<|im_start|>", "shout": True, "end": 'é"\\\n'}
    talks.set(encode__chat={"template": "chat.jinja", "mask": "all", "variables": variables})
    build(talks)
    judge = as_transformers_has_them(talks, masks=False)
    assert judge.bos_token == "<|im_start|>" and Tokenizer.load(talks.root / "data/tokenizer").digest == digest
    text = judge.apply_chat_template(messages(PLAIN_TALKS[1]), tokenize=False, shout=False)
    assert not text.startswith("!") and text.startswith("\n<|im_start|>the")
    talks.set(encode__chat=None, source__messages_column=None, source__text_column="id", source__id_column=None)
    build(talks)
    assert not (talks.root / "data/tokenizer/chat_template.jinja").exists()


@pytest.mark.slow
def test_an_imported_tokenizer_gets_the_template_that_is_asked_for(talks: Project) -> None:
    write_talks(talks, "plain", PLAIN_TALKS)
    (talks.root / "data/raw/plain").rename(talks.root / "data/raw/a.jsonl")
    (talks.root / "data/raw/b.jsonl").unlink()
    build(talks)
    taken = talks.root / "taken"
    (taken / "additional_chat_templates").mkdir(parents=True)
    (taken / "tokenizer.json").write_bytes((talks.root / "data/tokenizer/tokenizer.json").read_bytes())
    (taken / "additional_chat_templates/tool_use.jinja").write_text("tools")
    (taken / "tokenizer_config.json").write_text(json.dumps({"chat_template": "x", "eos_token": "<|pad|>"}))
    (taken / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    talks.set(tokenizer={"from": "taken"})
    build(talks)
    judge = as_transformers_has_them(talks)
    assert isinstance(judge.chat_template, str) and judge.eos_token == "<|pad|>"
    talks.set(encode__chat={"template": "tokenizer", "mask": "all"})
    build(talks)
    as_transformers_has_them(talks, masks=False)


def test_an_imported_tokenizer_keeps_its_chat_template(talks: Project) -> None:
    build(talks)
    (talks.root / "taken").mkdir()
    (talks.root / "taken/tokenizer.json").write_bytes((talks.root / "data/tokenizer/tokenizer.json").read_bytes())
    (talks.root / "taken/tokenizer_config.json").write_text(
        json.dumps(
            {
                "chat_template": PLAIN.replace("<|im_end|>", "{{ eos_token }}"),
                "eos_token": {"__type": "AddedToken", "content": "<|pad|>"},
            }
        )
    )
    talks.set(tokenizer={"from": "taken"})
    talks.set(encode__chat={"template": "tokenizer"})
    build(talks)
    tokenizer = Tokenizer.load(talks.root / "data/tokenizer")
    row = rows(talks)["a.jsonl-0"]
    assert tokenizer.decode(row["input_ids"]).endswith("dog<|pad|>")
    assert trained(tokenizer, row) == "the cat and the dog<|pad|>"
    (talks.root / "taken/tokenizer_config.json").write_text(json.dumps({"chat_template": PLAIN}))
    done = cli(talks, "build", "--force")
    assert done.returncode == 2 and "is not the tokenizer that tokenmill.lock pins" in done.stderr


@pytest.mark.slow
def test_a_template_for_conversations_with_tools_is_kept_with_the_dataset(talks: Project) -> None:
    build(talks)
    assert "tool_use_template" not in (talks.root / "data/tokens/manifest.json").read_text(encoding="utf-8")
    (talks.root / "taken").mkdir()
    (talks.root / "taken/tokenizer.json").write_bytes((talks.root / "data/tokenizer/tokenizer.json").read_bytes())
    both = [
        {"name": name, "template": f"{name}{PLAIN}".replace("}}<|", "}}{{ message.tool_calls }}<|")}
        for name in ("default", "tool_use")
    ]
    (talks.root / "taken/tokenizer_config.json").write_text(json.dumps({"chat_template": both}))
    talks.set(tokenizer={"from": "taken"})
    row = {"id": "tools", "messages": messages(TALKS["a.jsonl"][0]), "tools": [{"name": "log"}]}
    row["messages"][1]["tool_calls"] = [{"function": {"name": "log"}}]
    (talks.root / "data/raw/b.jsonl").write_text(json.dumps(row) + "\n")
    talks.set(encode__chat={"template": "tokenizer"}, source__tools_column="tools")
    build(talks)
    tokenizer = Tokenizer.load(talks.root / "data/tokenizer")
    begins = {name: tokenizer.decode(row["input_ids"]).partition("<")[0] for name, row in rows(talks).items()}
    assert begins == {"a.jsonl-0": "default", "a.jsonl-1": "default", "tools": "tool_use"}
    for options in ([], ["--no-source"]):
        assert cli(talks, "verify", *options).returncode == 0
    both[1]["template"] = both[1]["template"].replace("tool_use", "tools")
    (talks.root / "taken/tokenizer_config.json").write_text(json.dumps({"chat_template": both}))
    assert cli(talks, "pin").returncode == 0
    assert cli(talks, "build", "--only", "train-vocab", "--force").returncode == 0
    assert talks.actions(build(talks))["encode"] == "run"
    assert tokenizer.decode(rows(talks)["tools"]["input_ids"]).startswith("tools<")


@pytest.mark.slow
def test_a_dataset_without_a_stop_token_is_refused_with_the_ways_out(talks: Project) -> None:
    text = PLAIN.replace("<|im_end|>", "")
    (talks.root / "next.jinja").write_text(text)
    talks.set(encode__chat={"template": "next.jinja"})
    talks.depend("next.jinja", "train-vocab", "encode")
    done = cli(talks, "build")
    assert done.returncode == 2 and "none of 4 trained answers ends with a special token" in done.stderr
    assert "encode.chat.stop_token: next" in done.stderr and "stop_token: unchecked" in done.stderr
    talks.set(encode__chat={"template": "next.jinja", "stop_token": "next"})
    done = cli(talks, "build")
    assert done.returncode == 0, done.stderr
    assert "WARNING: 3 of 4 trained answers do not end with a special token" in done.stdout + done.stderr
    tokenizer = Tokenizer.load(talks.root / "data/tokenizer")
    assert trained(tokenizer, rows(talks)["a.jsonl-1"]) == "log <|im_end|> 🙂<|im_start|>no"
    report = json.loads((talks.root / "data/report/report.json").read_text())
    assert (report["conversations"]["n_answers"], report["conversations"]["n_without_stop"]) == (4, 3)
    manifest = json.loads((talks.root / "data/tokens/manifest.json").read_text())
    assert manifest["chat"]["answers"] == {"n_answers": 4, "n_without_stop": 3, "n_without_reasoning": 0}
    assert cli(talks, "verify").returncode == 0
    whole = read_manifest(talks.root / "data/tokens")
    chat = whole.chat and whole.chat.model_copy(update={"answers": AnswerCounts(4, 0, 0)})
    write_manifest(whole.model_copy(update={"chat": chat}), talks.root / "data/tokens")
    assert "answers is AnswerCounts(n_answers=4, n_without_stop=0" in cli(talks, "verify").stdout
    last = whole.chat and whole.chat.model_copy(update={"answers": None, "n_trained": whole.chat.n_trained})
    shards = [one.model_copy(update={"answers": None}) for one in whole.shards]
    write_manifest(whole.model_copy(update={"chat": last, "shards": shards}), talks.root / "data/tokens")
    assert cli(talks, "verify").returncode == 0  # as an earlier tokenmill wrote it
    talks.set(encode__chat={"template": "next.jinja", "stop_token": "unchecked"})
    assert cli(talks, "build").returncode == 0
    (talks.root / "next.jinja").write_text(
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %} | {% endfor %}"
    )
    talks.set(encode__chat={"template": "next.jinja"})
    assert cli(talks, "build").returncode == 0  # it writes no special tokens at all


@pytest.mark.slow
def test_a_file_without_a_stop_token_is_judged_alike_whether_it_is_encoded_anew_or_not(talks: Project) -> None:
    """A file of 1,000 conversations with one answer each is beside one whose first answers are followed by a marker."""
    (talks.root / "next.jinja").write_text(PLAIN.replace("<|im_end|>", ""))
    one = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]
    rows = "".join(json.dumps({"id": f"one-{i}", "messages": one}) + "\n" for i in range(1000))
    (talks.root / "data/raw/one.jsonl").write_text(rows)
    talks.set(encode__chat={"template": "next.jinja", "stop_token": "next"}, source__unit_bytes_min=0)
    talks.depend("next.jinja", "train-vocab", "encode")
    done = cli(talks, "build")
    assert done.returncode == 0 and "WARNING: 1,003 of 1,004 trained answers" in done.stdout + done.stderr, done.stderr
    for stop_token, exit_code in (("trained", 2), ("unchecked", 0), ("trained", 2)):
        talks.set(encode__chat={"template": "next.jinja", "stop_token": stop_token})
        done = cli(talks, "build")
        assert done.returncode == exit_code, done.stderr
        assert exit_code == 0 or "none of 1,00" in done.stderr


Change = Callable[[dict[str, list[Any]]], None]


def unmask(columns: dict[str, list[Any]]) -> None:
    columns["loss_mask"][0][-2] = 0


def unlike(columns: dict[str, list[Any]]) -> None:
    columns["sha256"][1] = bytes(32)


def as_special(columns: dict[str, list[Any]]) -> None:
    ids = columns["input_ids"][1]
    ids[ids.index(0, 2)] = 1  # another special token


@pytest.mark.parametrize(
    ("change", "words"), [(unmask, "row 0: loss_mask"), (unlike, "row 1: sha256"), (as_special, "row 1: ")]
)
def test_verify_names_a_changed_row_though_the_manifest_fits(talks: Project, change: Change, words: str) -> None:
    build(talks)
    tokens = talks.root / "data/tokens"
    manifest = read_manifest(tokens)
    path = tokens / manifest.shards[0].name
    table = pq.read_table(path, partitioning=None)
    columns = table.to_pydict()
    change(columns)
    path.chmod(0o644)
    path.unlink()
    changed = pa.table(columns, table.schema)
    pq.write_table(changed, path)
    shard = manifest.shards[0].model_copy(
        update={
            "n_bytes": path.stat().st_size,
            "sha256": sha256_file(path),
            "n_trained": sum(map(sum, columns["loss_mask"])),
        }
    )
    shards = [shard, *manifest.shards[1:]]
    n_trained = sum(one.n_trained or 0 for one in shards)
    assert manifest.chat is not None
    chat = manifest.chat.model_copy(update={"n_trained": n_trained})
    (tokens / "manifest.json").chmod(0o644)
    (tokens / "manifest.json").unlink()
    write_manifest(manifest.model_copy(update={"shards": shards, "chat": chat}), tokens)
    done = cli(talks, "verify", "--no-tables")
    assert done.returncode == 1 and f"{Path(shard.name).name}: " in done.stdout and words in done.stdout, done.stdout


def test_the_report_shows_conversations_with_their_trained_tokens(talks: Project) -> None:
    talks.set(run__report_page=True, validate__gates=["trained_share >= 0.05"])
    build(talks)
    report = json.loads((talks.root / "data/report/report.json").read_text())
    found = report["conversations"]
    assert found["messages"] == [{"messages": 2, "conversations": 2}, {"messages": 5, "conversations": 1}]
    assert report["measures"]["trained_share"] == found["trained_share"] > 0
    sample = next(one for one in found["samples"] if one["id"] == "b.jsonl-0")
    [side] = sample["sides"]
    assert side["runs"] == [
        ["<|im_start|>user\nnaïve café <|im_start|>assistant<|im_end|>\n<|im_start|>assistant\n", None],
        ["東京", "content"],
        ["<|im_end|>", "end"],
        ["\n", None],
    ]
    page = (talks.root / "data/report/report.html").read_text()
    assert '<bdi class="say content" title="content">東京</bdi>' in page
    assert '<bdi class="say end" title="end of the turn">&lt;|im_end|&gt;</bdi><bdi class="say">\n</bdi>' in page
    assert "reasoning</span>" not in page  # the legend names what is shown
