"""A file in which two tokens have each other's id is found by `tokenmill conform`: each format, each library that reads it, each
token that a text can lead to, and each special token."""

import base64
import json
import re
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tests.builders.sentencepiece_models import Cell, model_of
from tests.builders.small_tokenizer import small_tokenizer
from tests.snapshots.shapes import SHAPES, write
from tokenmill import Tokenizer
from tokenmill.features.conform.libraries import conform
from tokenmill.features.conform.program.answer import Result, answer_of
from tokenmill.features.conform.program.consumer import Subject
from tokenmill.features.convert.convert import convert
from tokenmill.features.convert.formats.protobuf import field, fields_of

pytest.importorskip("kitoken", reason="runs in the environment of make test-conform")

IS_BYTE = re.compile(rb"<0x[0-9A-F]{2}>")  # for characters without a token; those of this text may all have one
IN_NO_UTF8 = {bytes([byte]) for byte in (0xC0, 0xC1, *range(0xF5, 0x100))}


def in_tokenizer_json(whole: bytes, i: int, j: int) -> bytes:
    document, ids = json.loads(whole), {i: j, j: i}
    vocab = document["model"]["vocab"]
    for one in document["added_tokens"]:
        one["id"] = ids.get(one["id"], one["id"])
    document["added_tokens"].sort(key=lambda one: one["id"])  # the library numbers them in this order
    if isinstance(vocab, dict):
        document["model"]["vocab"] = {text: ids.get(id, id) for text, id in vocab.items()}
    else:
        vocab[i], vocab[j] = vocab[j], vocab[i]
    return json.dumps(document).encode()


def in_tiktoken(whole: bytes, i: int, j: int) -> bytes:
    tokens = [line.split()[0] for line in whole.splitlines()]
    tokens[i], tokens[j] = tokens[j], tokens[i]
    return b"".join(b"%s %d\n" % (token, id) for id, token in enumerate(tokens))


def in_tekken(whole: bytes, i: int, j: int) -> bytes:
    document = json.loads(whole)
    n_special = document["config"]["default_num_special_tokens"]
    part, key, first = ("special_tokens", "token_str", 0) if j < n_special else ("vocab", "token_bytes", n_special)
    one, other = document[part][i - first], document[part][j - first]
    one[key], other[key] = other[key], one[key]
    return json.dumps(document).encode()


def in_sentencepiece(whole: bytes, i: int, j: int) -> bytes:
    fields = list(fields_of(whole, "tokenizer.model"))
    assert [number for number, _ in fields[: j + 1]] == [1] * (j + 1)
    fields[i], fields[j] = fields[j], fields[i]
    return b"".join(field(number, value) for number, value in fields)


def in_gguf(whole: bytes, i: int, j: int) -> bytes:
    """Strings and types are exchanged where they are: both together are as long as before."""

    def exchanged(key: bytes, size_of: Callable[[int], int]) -> None:
        nonlocal whole
        at = whole.index(key) + len(key) + 16  # behind the types of the field and of its values, and their number
        starts = [at]
        for _ in range(j + 1):
            starts.append(starts[-1] + size_of(starts[-1]))
        one, between = whole[starts[i] : starts[i + 1]], whole[starts[i + 1] : starts[j]]
        other = whole[starts[j] : starts[j + 1]]
        whole = whole[: starts[i]] + other + between + one + whole[starts[j + 1] :]

    exchanged(b"tokenizer.ggml.tokens", lambda at: 8 + struct.unpack_from("<Q", whole, at)[0])
    exchanged(b"tokenizer.ggml.token_type", lambda _: 4)
    return whole


class Format(NamedTuple):
    """A file's name, what exchanges two ids in it, what makes a tokenizer with it, and the libraries that read it."""

    file: str
    exchange: Callable[[bytes, int, int], bytes]
    make: Callable[[Path], Path]
    libraries: Sequence[str]


def shape(name: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        folder.mkdir()
        write(folder, SHAPES[name])
        return folder

    return made


def model(kind: str, symbols: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        path = folder.with_suffix(".model")
        path.write_bytes(model_of(Cell(kind, "identity", symbols, True, False, True)))
        convert(path, folder)
        (folder / "tokenizer.model").write_bytes(path.read_bytes())
        return folder

    return made


def converted(format: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        small_tokenizer(folder)
        convert(folder, folder.with_name("converted"), format)
        (file,) = folder.with_name("converted").iterdir()
        file.rename(folder / file.name)
        return folder

    return made


def tekken(folder: Path) -> Path:
    made = small_tokenizer(folder.with_name("small"))
    lines = [base64.b64decode(line.split()[0]) for line in (made / "vocab.tiktoken").read_bytes().splitlines()]
    tokens = [*(bytes([byte]) for byte in range(256)), *(one for one in lines if len(one) > 1)]
    [pattern] = Tokenizer.load(made).steps or ()
    special = ["<unk>", "<s>", "</s>"]
    config = {
        "pattern": pattern,
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": len(tokens) + len(special),
        "default_num_special_tokens": len(special),
        "version": "v3",
    }
    vocab = [
        {"rank": i, "token_bytes": base64.b64encode(one).decode(), "token_str": None} for i, one in enumerate(tokens)
    ]
    listed = [{"rank": i, "token_str": one, "is_control": True} for i, one in enumerate(special)]
    file = folder.with_name("tekken.json")
    file.write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": listed}), encoding="utf-8")
    convert(file, folder)
    file.rename(folder / file.name)
    return folder


JSON = ("tokenizers", "transformers", "transformers-slow", "fastokens", "gigatoken", "kitoken")
FORMATS = {
    **{
        name: Format("tokenizer.json", in_tokenizer_json, shape(name), JSON)
        for name in ("bytes added", "bytes gpt2", "characters phi-3", "unigram", "wordlevel", "wordpiece")
    },
    "tiktoken": Format("vocab.tiktoken", in_tiktoken, small_tokenizer, ["tiktoken"]),
    "tekken": Format("tekken.json", in_tekken, tekken, ["mistral-common"]),
    "gguf": Format("tokenizer.gguf", in_gguf, converted("gguf"), ["llama.cpp"]),
    **{
        f"{kind}, {symbols}": Format("tokenizer.model", in_sentencepiece, model(kind, symbols), ["sentencepiece"])
        for kind in ("bpe", "unigram")
        for symbols in ("control", "bytes")
    },
}
CELLS = [(name, library) for name, format in FORMATS.items() for library in format.libraries]


@pytest.mark.parametrize(("name", "library"), CELLS)
def test_a_file_with_two_ids_exchanged_is_other(
    name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # which `compare` sets, too
    format = FORMATS[name]
    path = format.make(tmp_path / "tokenizer")
    tokenizer = Tokenizer.load(path)
    missed: list[tuple[int, int]] = []
    reached: set[int] = set()

    def asked_here(subject: Subject, *_: Any) -> list[Result]:
        """In place of one process for each file: the same question."""
        first = answer_of(library, subject)
        if first.verdict != "same":
            return [first]
        file = Path(subject.folder, format.file)
        whole = file.read_bytes()
        reached.update(id for vectors in subject.vectors.values() for _, _, ids in vectors for id in ids)
        for i, j in pairwise(sorted(tokenizer.tokens)):
            try:
                changed = format.exchange(whole, i, j)
            except IndexError:  # a special token, which is not in this file
                continue
            file.unlink()
            file.write_bytes(changed)
            if answer_of(library, subject).verdict == "same":
                missed.append((i, j))
        return [first]

    with patch("tokenmill.features.conform.libraries.compare", asked_here):
        (first,) = conform(path, [library])
    if first.verdict != "same":
        pytest.skip(f"{first.verdict}: {first.why}")
    assert not [pair for pair in missed if not reached.isdisjoint(pair)]
    never = {token for id, token in tokenizer.tokens.items() if id not in reached} - IN_NO_UTF8
    assert len([token for token in never if not IS_BYTE.fullmatch(token)]) < 10
