"""golden.json has conversations with their ids by the tokenizer's chat template."""

import json
from pathlib import Path

import pytest

from tests.builders.small_tokenizer import small_tokenizer
from tokenmill import Tokenizer
from tokenmill.artifacts.golden import read_golden
from tokenmill.artifacts.golden_conversations import conversations
from tokenmill.artifacts.golden_making import make_golden, renew_conversations
from tokenmill.tokenizer.chat_files import CHAT_TEMPLATE_FILE


def test_conversations_have_turns_in_order() -> None:
    one, two, _three = conversations(["a", "b"], 3)
    assert [message["role"] for message in one] == ["system", "user", "assistant"]
    assert [message["role"] for message in two] == ["user", "assistant"] * 2


def test_golden_json_has_the_ids_of_the_rendered_conversations(tmp_path: Path) -> None:
    folder = small_tokenizer(tmp_path / "tokenizer")
    tokenizer, golden = Tokenizer.load(folder), read_golden(folder)
    assert golden is not None
    for one in golden.conversations:
        text = "".join(f"<|im_start|>{said['role']}\n{said['content']}<|im_end|>\n" for said in one.messages)
        assert one.ids == tokenizer.encode(text, special="allow")
    assert len(golden.conversations) == 12
    assert len((folder / "golden.json").read_text(encoding="ascii").splitlines()) > 12 + len(golden.vectors)


def test_another_template_makes_other_conversations(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = small_tokenizer(tmp_path / "tokenizer")
    tokenizer, before = Tokenizer.load(folder), (folder / "golden.json").read_bytes()
    renew_conversations(folder, tokenizer)
    assert (folder / "golden.json").read_bytes() == before
    template = "{% for one in messages %}{{ one.content }}<|im_end|>{% endfor %}"
    (folder / CHAT_TEMPLATE_FILE).write_text(template, encoding="utf-8")
    renew_conversations(folder, tokenizer)
    golden = read_golden(folder)
    assert golden is not None and golden.conversations[0].ids.count(2) == 3
    assert len(golden.vectors) == len(json.loads(before)["vectors"])
    (folder / CHAT_TEMPLATE_FILE).write_text("{{ raise_exception('no names') }}", encoding="utf-8")
    renew_conversations(folder, tokenizer)
    assert "golden.json has no conversations, since the chat template refuses them: " in capfd.readouterr().err
    assert b"conversations" not in (folder / "golden.json").read_bytes()
    dated = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}"
    (folder / CHAT_TEMPLATE_FILE).write_text(template + dated, encoding="utf-8")
    renew_conversations(folder, tokenizer)
    assert b"conversations" not in (folder / "golden.json").read_bytes()
    (folder / CHAT_TEMPLATE_FILE).unlink()
    assert make_golden(folder, tokenizer, {}) == read_golden(folder)
