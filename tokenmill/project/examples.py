"""Small documents that come with tokenmill, and the parameters that fit, for `tokenmill init --example`."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tokenmill
from tokenmill.error_pages import error_pages
from tokenmill.layout import RAW_DIRECTORY


class Example(NamedTuple):
    """`files` gives the text of each file of documents by its path relative to the project; `settings` has a value of YAML, all in
    one line, for keys of params.yaml, such as encode.pack."""

    files: Callable[[], dict[str, str]]
    settings: Mapping[str, str]


def _english() -> dict[str, str]:
    """The pages of the error codes, a document each."""
    documents = [
        {"id": code, "text": f"{page.title}\n\n{page.meaning}\n\n{page.advice}"} for code, page in error_pages().items()
    ]
    return {f"{RAW_DIRECTORY}/english.jsonl": _lines(documents)}


def _code() -> dict[str, str]:
    """The modules that read a corpus, a document each."""
    folder = Path(tokenmill.__file__).parent / "corpus"
    return {f"{RAW_DIRECTORY}/{path.name}": path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


def _chat() -> dict[str, str]:
    """Two questions about each error code, with their answers."""
    conversations = [
        {
            "id": code,
            "messages": [
                {"role": "user", "content": f"What does the error {code} of tokenmill mean?"},
                {"role": "assistant", "content": f"It means that {page.title}. {page.meaning}"},
                {"role": "user", "content": "What do I do?"},
                {"role": "assistant", "content": page.advice},
            ],
        }
        for code, page in error_pages().items()
    ]
    return {f"{RAW_DIRECTORY}/chat.jsonl": _lines(conversations)}


def _lines(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


EXAMPLES = {
    "english": Example(_english, {"train_vocab.vocab_size": "1024", "encode.splits": "{train: 0.9, validation: 0.1}"}),
    "code": Example(
        _code,
        {
            "source.glob": f"{RAW_DIRECTORY}/**/*.py",
            "source.format": "text",
            "count.pattern": "o200k",
            "train_vocab.vocab_size": "2048",
        },
    ),
    "chat": Example(
        _chat,
        {
            "source.messages_column": "messages",
            "train_vocab.vocab_size": "1024",
            "train_vocab.special_tokens": '["<|endoftext|>", "<|im_start|>", "<|im_end|>"]',
            "train_vocab.eos_token": '"<|im_end|>"',
            "train_vocab.pad_token": '"<|endoftext|>"',
            "encode.end_of_document": "null",
            "encode.chat": "{template: chatml}",
            "encode.pack": "{length: 512, mode: best_fit, labels: true}",
        },
    ),
}


def with_settings(params: str, settings: Mapping[str, str]) -> str:
    """The text of a params.yaml with other values for some keys. A remark stays where it was; a key that the text lacks is the
    first of its section."""
    for name, value in settings.items():
        section, _, key = name.partition(".")
        before, head, rest = params.partition(f"\n{section}:\n")
        keys, blank, after = rest.partition("\n\n")
        line = f"  {key}: {value}"
        if found := re.search(rf"(?m)^  {key}: .*?  (?=#)", keys):
            keys = keys.replace(found[0], f"{line:<{len(found[0]) - 2}}  ", 1)
        else:
            keys = f"{line}\n{keys}"
        params = f"{before}{head}{keys}{blank}{after}"
    return params
