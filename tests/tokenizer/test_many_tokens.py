"""20,000 added tokens are found in texts and conversations like a few: nothing takes time with the square of their number."""

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tokenizers

from tests.builders.tokenizer_files import DOCUMENT, FLAGS, NEXT_ID
from tokenmill import Tokenizer, _core
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.rendering import ChatSettings
from tokenmill.errors import SpecialTokenError

N_TOKENS = 20_000
TEXT = "the cat <audio_7> <audio_19998><audio_19999>x <audio_1 <audio_20000> audio_5>"
TEMPLATE = (
    "{% for message in messages %}<audio_8>{{ message.role }}\n"
    "{% generation %}{{ message.content }}<audio_10>{% endgeneration %}{% endfor %}"
)


def many(tmp_path: Path, **flags: Any) -> Path:
    document = copy.deepcopy(DOCUMENT)
    document["added_tokens"] += [
        {
            "id": NEXT_ID + i,
            "content": f"<audio_{i}>",
            "special": True,
            **FLAGS,
            **{name: of(i) for name, of in flags.items()},
        }
        for i in range(N_TOKENS)
    ]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "flags",
    [{}, {"special": lambda i: i % 2 == 0}, {"special": lambda i: i % 2 == 0, "lstrip": lambda i: i % 3 == 0}],
    ids=["special", "half of them special", "with flags"],
)
def test_many_tokens_are_found_where_tokenizers_finds_them(tmp_path: Path, flags: dict[str, Any]) -> None:
    ours = Tokenizer.load(path := many(tmp_path, **flags))
    library = tokenizers.Tokenizer.from_file(str(path))
    assert ours.encode(TEXT, special="allow") == library.encode(TEXT, add_special_tokens=False).ids
    library.encode_special_tokens = True
    assert ours.encode(TEXT) == library.encode(TEXT, add_special_tokens=False).ids
    with pytest.raises(SpecialTokenError, match="<audio_19998>"):
        ours.encode("the <audio_19998>", special="reject")


def test_a_conversation_has_the_ids_of_the_template_alone(tmp_path: Path) -> None:
    ours = Tokenizer.load(many(tmp_path))
    encoder = ChatEncoder(ours, ChatSettings(TEMPLATE, "assistant", {}), "template")
    messages = [{"role": "user", "content": "hi <audio_10>"}, {"role": "assistant", "content": "cat"}]
    found = encoder.encode_batch(pa.array([json.dumps({"messages": messages})], pa.large_string()))
    ids = found.input_ids[0].as_py()
    special = [id for id in ids if id >= NEXT_ID]
    assert special == [NEXT_ID + 8, NEXT_ID + 10] * 2
    assert ours.decode(ids) == "<audio_8>user\nhi <audio_10><audio_10><audio_8>assistant\ncat<audio_10>"


def test_texts_are_found_leftmost_and_longest_and_counted_in_characters() -> None:
    finder = _core.TextFinder(["ä<x>", "<x>", "<x><x>", "<y>"])
    assert finder.spans("ö<x><x><x>ä<x> <z>") == [(1, 7, 2), (7, 10, 1), (10, 14, 0)]
    assert finder.is_in("a<y>") and not finder.is_in("<z>")
    assert finder.occurring(["<z>", "ä<x>"]) == [0, 1]
    assert _core.TextFinder([]).spans("a") == [] == _core.TextFinder([]).occurring(["a"])
