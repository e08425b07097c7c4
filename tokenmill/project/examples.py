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
    one line, for keys of params.yaml."""

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
    "english": Example(_english, {"vocab_size": "1024", "splits": "{train: 0.9, validation: 0.1}"}),
    "code": Example(
        _code, {"glob": f"{RAW_DIRECTORY}/**/*.py", "format": "text", "pattern": "o200k", "vocab_size": "2048"}
    ),
    "chat": Example(
        _chat,
        {
            "messages_column": "messages",
            "vocab_size": "1024",
            "special_tokens": '["<|endoftext|>", "<|im_start|>", "<|im_end|>"]',
            "eos_token": '"<|im_end|>"',
            "pad_token": '"<|endoftext|>"',
            "end_of_document": "null",
            "chat": "{template: chatml}",
            "pack": "{length: 512, mode: best_fit, labels: true}",
        },
    ),
}


def with_settings(params: str, settings: Mapping[str, str]) -> str:
    """The text of a params.yaml with other values for some keys, each of which it has once; the remarks stay where they were."""
    for key, value in settings.items():
        (old,) = re.findall(rf"(?m)^  {key}: .*?  #", params)
        params = params.replace(old, f"{f'  {key}: {value}':<{len(old) - 3}}  #", 1)
    return params
