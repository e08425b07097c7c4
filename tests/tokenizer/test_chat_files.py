"""Chat templates beside a tokenizer: those that transformers' AutoTokenizer takes, wherever it finds them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from tests.builders.chats import DOCUMENTS, TOOLS, canonical, told
from tokenmill import Tokenizer
from tokenmill.config.chat_params import Chat
from tokenmill.errors import ChatError, ParamsError, TokenizerError
from tokenmill.stages.encode_chat import chat_encoder, chat_entry
from tokenmill.tokenizer.chat_files import copy_chat_files, special_names

CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "x"}}}
TALKS: list[tuple[list[dict[str, Any]], Any]] = [
    ([told("user", "the cat"), told("assistant", "sat")], None),
    ([told("user", "rain?"), told("assistant", "", tool_calls=[CALL]), told("assistant", "yes")], TOOLS),
]


def template(name: str) -> str:
    """A template that writes its own name, and a call where it knows one."""
    call = "{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}{% endfor %}"
    return (
        f"{name} {{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{{% generation %}}{{{{ m.content }}}}{call}"
        "<|im_end|>{% endgeneration %}{% endfor %}"
    )


def by_prefixes(name: str) -> str:
    return template(name).replace("{% generation %}", "").replace("{% endgeneration %}", "")


def listed(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "template": template(name)} for name in names]


PLACES: dict[str, dict[str, Any]] = {
    "a text": {"tokenizer_config.json": template("only")},
    "a list": {"tokenizer_config.json": listed("rag", "tool_use", "default")},
    "a list without one for tools": {"tokenizer_config.json": listed("default", "rag")},
    "a list with a name twice": {"tokenizer_config.json": listed("default", "default")},
    "an object": {"tokenizer_config.json": {"default": template("default"), "tool_use": template("tool_use")}},
    "a file": {"chat_template.jinja": template("file")},
    "a file before a list": {"chat_template.jinja": template("file"), "tokenizer_config.json": listed("tool_use")},
    "files": {"chat_template.jinja": template("file"), "additional_chat_templates/tool_use.jinja": template("tools")},
    "a default among the others": {
        "chat_template.jinja": template("file"),
        "additional_chat_templates/default.jinja": template("other"),
    },
    "others before a list": {
        "additional_chat_templates/default.jinja": template("default"),
        "additional_chat_templates/rag.jinja": template("rag"),
        "tokenizer_config.json": listed("default", "tool_use"),
    },
    "a file before a processor's": {
        "chat_template.jinja": template("file"),
        "chat_template.json": template("processor"),
    },
}


def folder(path: Path, files: dict[str, Any]) -> Path:
    (path / "additional_chat_templates").mkdir(parents=True)
    (path / "tokenizer.json").write_text(json.dumps(DOCUMENTS["plain"]()), encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    for name, value in files.items():
        found = {**config, "chat_template": value} if name == "tokenizer_config.json" else {"chat_template": value}
        text = value if name.endswith(".jinja") else json.dumps(found)
        (path / name).write_text(text, encoding="utf-8")
    return path


def encoded(path: Path, messages: list[dict[str, Any]], tools: Any) -> tuple[list[int], list[int]]:
    entry = chat_entry(path, Chat(template="tokenizer"), path)
    found = chat_encoder(Tokenizer.load(path), entry).encode_batch(
        pa.array([canonical(messages, tools)], pa.large_string())
    )
    return found.input_ids[0].as_py(), found.loss_mask[0].as_py()


@pytest.mark.parametrize("place", PLACES)
def test_each_conversation_takes_the_template_that_transformers_takes(tmp_path: Path, place: str) -> None:
    made = folder(tmp_path / "made", PLACES[place])
    copy = folder(tmp_path / "copy", {})
    copy_chat_files(made, copy)  # as an import does
    for path in (made, copy):
        judge = AutoTokenizer.from_pretrained(path)
        for messages, tools in TALKS:
            found = judge.apply_chat_template(
                messages, tools=tools, return_dict=True, return_assistant_tokens_mask=True
            )
            assert encoded(path, messages, tools) == (found["input_ids"], found["assistant_masks"])


def test_templates_with_and_without_generation_tags_go_together(tmp_path: Path) -> None:
    both = [{"name": "default", "template": by_prefixes("default")}, *listed("tool_use")]
    path = folder(tmp_path / "made", {"tokenizer_config.json": both})
    encoder = chat_encoder(Tokenizer.load(path), chat_entry(path, Chat(template="tokenizer"), path))
    found = encoder.encode_batch(pa.array([canonical(*talk) for talk in TALKS + TALKS], pa.large_string()))
    for i, talk in enumerate(TALKS + TALKS):
        assert (found.input_ids[i].as_py(), found.loss_mask[i].as_py()) == encoded(path, *talk)


def test_a_template_of_a_processor_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    path = folder(tmp_path / "made", {"chat_template.json": template("processor")})
    judge = AutoTokenizer.from_pretrained(path)
    messages, tools = TALKS[1]
    found = judge.apply_chat_template(messages, chat_template=template("processor"), tools=tools, return_dict=True)
    assert encoded(path, messages, tools)[0] == found["input_ids"]


def test_a_conversation_that_transformers_has_no_template_for_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "tools", {"tokenizer_config.json": listed("tool_use", "rag")})
    judge = AutoTokenizer.from_pretrained(path)
    messages, tools = TALKS[1]
    assert encoded(path, messages, tools)[0] == judge.apply_chat_template(messages, tools=tools)["input_ids"]
    with pytest.raises(ValueError, match="no default"):
        judge.apply_chat_template(TALKS[0][0])
    with pytest.raises(ChatError, match=r"has no tools.*named tool_use.*one named default"):
        encoded(path, *TALKS[0])
    path = folder(tmp_path / "neither", {"tokenizer_config.json": listed("rag", "code")})
    with pytest.raises(ParamsError, match="the chat templates code, rag, and none is named default or tool_use"):
        encoded(path, *TALKS[0])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "found 'default' with int"),
        ([{"name": "default"}], "found 'default' with NoneType"),
        ([{"template": "x"}], "found None with str"),
        ({"../x": "x"}, "names that a file can have; found '../x'"),
    ],
)
def test_templates_that_cannot_be_read_are_refused(tmp_path: Path, value: Any, words: str) -> None:
    path = folder(tmp_path / "made", {"tokenizer_config.json": value})
    with pytest.raises(TokenizerError, match=words):
        encoded(path, *TALKS[0])


GUARDED = [
    "{% if bos_token %}{{ bos_token }}{% endif %}",
    "{% if bos_token is defined and bos_token %}{{ bos_token }}{% endif %}",
    "{% if bos_token is not none %}{{ bos_token }}{% endif %}",
    "{{ bos_token | default('') }}{{ bos_token | d('-', true) }}",
    "{{ bos_token or '' }}{{ bos_token if bos_token else '+' }}",
    "{% set b = bos_token if bos_token is defined else '' %}{{ b }}",
    "{% if bos_token != '' %}[{{ bos_token }}]{% endif %}{{ not bos_token }}",
]


@pytest.mark.parametrize("name", ["bos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"])
def test_a_token_that_there_is_not_is_what_it_is_to_transformers(tmp_path: Path, name: str) -> None:
    texts = "".join(GUARDED).replace("bos_token", name)
    path = folder(tmp_path / "made", {"chat_template.jinja": texts + template("x")})
    config = json.loads((path / "tokenizer_config.json").read_text())
    judge = AutoTokenizer.from_pretrained(path)
    for value in ({}, {name: None}, {name: "<s>"}):
        (path / "tokenizer_config.json").write_text(json.dumps(config | value))
        judge = AutoTokenizer.from_pretrained(path)
        for talk in TALKS:
            assert encoded(path, *talk)[0] == judge.apply_chat_template(talk[0], tools=talk[1])["input_ids"]


def test_names_of_tokens_are_those_that_transformers_gives_to_templates(tmp_path: Path) -> None:
    names = ["bos_token", "eos_token", "unk_token", "image_token", "voice"]
    shown = "".join(f"{{% if {name} %}}[{name}: {{{{ {name} }}}}]{{% endif %}}" for name in names)
    path = folder(tmp_path / "made", {"chat_template.jinja": shown + template("x")})
    (path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<s>", "unk_token": {"content": "<unk>"}}))
    config = {"bos_token": "</s>", "eos_token": "</s>", "image_token": "<b>", "add_bos_token": True}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "extra_special_tokens": {"voice": "[INST]"}}
    for more in ({}, {"added_tokens_decoder": {}}):
        (path / "tokenizer_config.json").write_text(json.dumps(config | more))
        judge = AutoTokenizer.from_pretrained(path)
        names_in_judge = {name: text for name, text in judge.special_tokens_map.items() if name in names}
        assert special_names(path) == names_in_judge
