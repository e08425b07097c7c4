"""vocab.json and merges.txt, the two files that GPT-2's tokenizer came as. Neither says how text is split."""

import json
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.pretokenizers import patterns
from tokenmill.pretokenizers.json_steps import pre_tokenizer_of
from tokenmill.storage.followed import followed
from tokenmill.tokenizer.formats.other_kinds import refuse_mark, refuse_other
from tokenmill.tokenizer.formats.strict_json import Each, check, parse
from tokenmill.tokenizer.forms import Form, not_merged
from tokenmill_reader.regular_files import read

_MERGES_FILE = "merges.txt"
_HEADER = "#version: 0.2"


def files_of(form: Form) -> dict[str, bytes]:
    """vocab.json and merges.txt. Raises TokenizerError unless the tokenizer is byte-level BPE without what only tokenizer.json can
    say. The split pattern is left to whoever reads them."""
    name = "vocab.json and merges.txt"
    model = form.byte_level(name)
    if model.nfc or model.add_prefix_space:
        raise form.cannot(name, "normalizer", "they have none, and no prefix space")
    if others := [added_token.text for added_token in model.added if not added_token.special]:
        raise form.cannot(name, "added_tokens", f"they cannot say that {others[0]!r:.60} is found in any text")
    if model.ignore_merges and (token := not_merged(model)) is not None:
        raise form.cannot(name, "model.ignore_merges", f"merges alone do not make {token!r:.60}")
    document = form.tokenizer.document
    vocab = document["model"]["vocab"] | {
        added_token["content"]: added_token["id"] for added_token in document["added_tokens"]
    }
    in_order = dict(sorted(vocab.items(), key=lambda item: int(item[1])))
    lines = [_HEADER, *(" ".join(pair) for pair in document["model"]["merges"])]
    return {
        "vocab.json": json.dumps(in_order, ensure_ascii=False).encode(),
        _MERGES_FILE: ("\n".join(lines) + "\n").encode(),
    }


def document_of(path: Path, pattern: str | None) -> dict[str, Any]:
    """Makes a tokenizer.json of a vocab.json and the merges.txt beside it. Without a pattern, its pre_tokenizer is None. Raises
    TokenizerError."""
    vocab = parse(read(path), str(path))
    check(vocab, Each([int]), f"{path}: ")
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": None if pattern is None else pre_tokenizer_of(patterns.steps_of(pattern), False),
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": _merges(followed(path.parent, _MERGES_FILE))},
    }


def check_split(document: dict[str, Any], before: dict[str, Any], path: Path) -> None:
    """Raises TokenizerError without a split, and for one by the files beside a vocab.json that differs from the one `before`, which
    was asked for."""
    split_before, split = before["pre_tokenizer"], document["pre_tokenizer"]
    if split is None:
        names = ", ".join(patterns.names())
        raise TokenizerError(path, "does not say how text is split.", f"Give --pattern: {names}, or a regex.")
    if split_before is not None and split_before != split:
        raise TokenizerError(
            path.parent,
            "by the files beside vocab.json, AutoTokenizer splits text in another way than --pattern says.",
            f"Leave --pattern out, or name {path} itself: then it counts alone.",
        )


def _merges(path: Path) -> list[list[str]]:
    try:
        content = read(path)
        refuse_other(path, content, "text")
        refuse_mark(path, content)
        lines = content.decode().split("\n")
    except FileNotFoundError:
        raise TokenizerError(path, "missing; vocab.json alone does not say how bytes become tokens.") from None
    except UnicodeDecodeError as error:
        raise TokenizerError(path, f"not UTF-8 at byte {error.start}.", "Fetch or make the file again.") from None
    merges = []
    for number, line in enumerate(lines, 1):
        pair = line.removesuffix("\r").split(" ")
        if (number == 1 and line.startswith("#version")) or pair == [""]:
            continue
        if len(pair) != 2 or not all(pair):
            raise TokenizerError(f"{path}: line {number}", "expected two tokens with a space between; found others.")
        merges.append(pair)
    return merges
