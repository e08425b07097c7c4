"""What is fuzzed. Each target prepares its files once, and gives the function that tries a changed one."""

import base64
import bz2
import gzip
import io
import json
import lzma
import re
import shutil
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import zstandard

import tokenmill
from tests.builders.chats import DOCUMENTS, VARIABLES, a_conversation, canonical, tokenizer
from tests.builders.gguf import FIELDS, Field, gguf_file
from tests.builders.pieces import PIECES, PLAIN
from tests.builders.shards import records
from tests.conftest import make_project
from tests.fuzz.changes import ODD_NAMES, change_json, changed_bytes, parquet_numbers, put_link, template, with_number
from tests.fuzz.commands import run_command, run_conform, run_reader
from tokenmill import Tokenizer
from tokenmill.chat.chat_encoder import ChatEncoder
from tokenmill.chat.named import NAMED, template_text
from tokenmill.chat.rendering import ChatSettings
from tokenmill.config.sources import Column, Conversations, Reading
from tokenmill.corpus.limits import VALUE_BYTES_MAX, Limits
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.corpus.units import cut
from tokenmill.dataset.manifest import Manifest
from tokenmill.errors import TokenizerError, TokenmillError
from tokenmill.features.convert.convert import FORMATS, convert
from tokenmill.features.convert.formats.gguf import ARRAY, BOOL, FLOAT32, INT32, STRING, UINT32
from tokenmill.features.convert.formats.pieces import document_of as character_document
from tokenmill.features.view.dataset_view import Asked, DatasetView
from tokenmill.storage.atomic import sha256_directory
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.followed import refuse_links
from tokenmill.tokenizer.folder_copy import copy_folder
from tokenmill.tokenizer.formats.tiktoken_file import read_ranks

_TEMPLATES = ("chat_template.jinja", "additional_chat_templates/a.jinja")
_GGUF_KEYS = ["ggml.add_space_prefix", "ggml.bos_token_id", "chat_template", "x"]

_INDEX = "tables/documents.parquet"
Try = Callable[[Random, Path], None]
_TEXT = "the cat sat 0123 <s> naïve café 東京 🙂\r\n\u2028 </s>"
_PACKERS = {".gz": gzip.compress, ".zst": zstandard.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


_KEPT = (Column("id", "keep_columns"), Column("n", "keep_columns"))


def readers(base: Path) -> Try:
    """Files of documents of every kind, as texts and as conversations."""
    rows = [{"id": f"a{i}", "text": _TEXT[i % 40 :] * (i % 7), "n": i, "messages": [_turn(i)]} for i in range(60)]
    table = pa.Table.from_pylist(rows)
    lines = "".join(json.dumps(row, ensure_ascii=row["n"] % 2 > 0) + "\n" for row in rows)
    plain = {"a.jsonl": lines.encode(), "a.json": json.dumps(rows).encode(), "a.txt": (_TEXT * 50).encode()}
    plain["a.csv"] = records([(str(row["id"]), str(row["text"])) for row in rows])
    made = {name: [content] for name, content in plain.items()}
    made |= {name + suffix: [pack(content)] for name, content in plain.items() for suffix, pack in _PACKERS.items()}
    made |= {"a.parquet": [], "a.arrow": []}
    delta: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    for more in ({}, delta, {"use_dictionary": False, "data_page_version": "2.0"}):
        for compression in ("none", "snappy", "gzip", "zstd"):
            pq.write_table(table, file := io.BytesIO(), compression=compression, row_group_size=25, **more)
            made["a.parquet"].append(file.getvalue())
    for one in (table, table.set_column(1, "text", table["text"].dictionary_encode())):
        for compression in ("uncompressed", "lz4", "zstd"):
            feather.write_feather(one, file := io.BytesIO(), compression=compression, chunksize=25)
            made["a.arrow"].append(file.getvalue())
    long = {column: _long_values(column) for column in rows[0]}

    def attempt(chance: Random, folder: Path) -> None:
        name = chance.choice([*made, *["a.parquet", "a.arrow"] * 4])  # whose numbers are many
        suffix = Path(name).suffix
        if chance.random() < 0.002:
            name, content = "a.jsonl.zst", long[chance.choice([*long])]
        elif suffix in _PACKERS and chance.random() < 0.5:  # what is inside is changed, and not the compressed bytes
            content = _PACKERS[suffix](changed_bytes(chance, plain[name.removesuffix(suffix)]))
        else:
            content = chance.choice(made[name])
            if suffix == ".parquet" and chance.random() < 0.5:
                content = with_number(
                    content, chance.choice(parquet_numbers(content)), chance.getrandbits(chance.randrange(65))
                )
            else:
                content = changed_bytes(chance, content)
        (folder / name).write_bytes(content)
        columns = chance.choice([(), (), (), _KEPT, (Column("n", "encode.split_group"), *_KEPT)])
        fields = "text", chance.choice(["id", "n", None]), chance.choice(["\n", " sat", None])
        conversations = chance.choice([None, None, Conversations("messages", None, None)])
        on_bad = chance.choice([None, lambda bad: None])
        if chance.random() < 0.02:
            (folder / name).rename(folder / (chance.choice(ODD_NAMES) + name))
        (shard,) = find_shards(folder, "*")
        (unit,) = cut([shard], Digests(folder / "facts"), 0, 1 << 30, 1).units
        part, limits = unit.pieces[0].part, Limits(1 << 22, 1 << 24, 1 << 16)
        for batch in read_batches(shard, Reading(*fields, conversations, columns), part, on_bad, limits):
            batch.texts.validate(full=True)
            for values in batch.columns.values():
                values.validate(full=True)
                assert all(len(value) <= 12 * VALUE_BYTES_MAX for value in values.to_pylist()), "a value is too long"

    return attempt


def _long_values(column: str) -> bytes:
    """Some kB of JSON lines, packed, with a value of 1 MB in each of 1,500 rows."""
    row = {"id": "x", "text": "x", "n": 1, "messages": [_turn(1)]}
    line = (json.dumps(row | {column: "a b " * 250_000}) + "\n").encode()
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join([packer.compress(line) for _ in range(1_500)] + [packer.flush()])


def _turn(i: int) -> dict[str, str]:
    return {"role": "user", "content": "é" * i}


def datasets(base: Path) -> Try:
    """Copies of a dataset, each with a file that is changed: often the manifest, whose digest is then made right."""
    project = make_project(base / "project")
    project.set(encode__formats=["parquet", "arrow"], encode__end_of_document="<|endoftext|>")
    project.set(encode__splits={"train": 0.7, "validation": 0.3}, encode__pack={"length": 16, "mode": "best_fit"})
    project.build()
    data = project.root / "data"
    pq.write_table(pq.read_table(data / _INDEX), small_groups := io.BytesIO(), row_group_size=2)
    index = small_groups.getvalue()
    in_footer = [place for place in parquet_numbers(index) if place[2] == len(index) - 8]
    parts = ("tokens", "tables", "tokenizer", "quarantine")
    names = sorted(one.relative_to(data) for part in parts for one in (data / part).rglob("*") if one.is_file())

    def attempt(chance: Random, folder: Path) -> None:
        for part in parts:
            shutil.copytree(data / part, folder / part)
        path = folder / (Path("tokens/manifest.json") if chance.random() < 0.5 else chance.choice(names))
        if chance.random() < 0.2:
            number = chance.getrandbits(chance.choice([3, 4, 64]))
            (folder / _INDEX).write_bytes(with_number(index, chance.choice(in_footer), number))
        elif path.suffix == ".json" and chance.random() < 0.8:
            text = json.dumps(json.loads(path.read_bytes()))
            if chance.random() < 0.2 and (names_there := re.findall('"name": ("[^"]+")', text)):
                odd = json.dumps(chance.choice([*ODD_NAMES, "\0"]))
                text = text.replace(f'"name": {chance.choice(names_there)}', f'"name": {odd}')
            change_json(chance, document := json.loads(text))
            with suppress(ValueError, TypeError, KeyError):  # the file is no manifest, or none any more
                document["digest"] = Manifest.model_validate(document).own_digest()
            path.write_text(json.dumps(document))
        else:
            path.write_bytes(changed_bytes(chance, path.read_bytes()))
        if chance.random() < 0.1:
            (folder / "tokens" / chance.choice(ODD_NAMES)).write_text("")
        if chance.random() < 0.05:
            run_conform(chance, shutil.copytree(data / "tokenizer", folder / "conform"))
        run_reader(folder, "check", "tokens")
        run_reader(folder, "info", "tokens")
        for words in (["info"], ["verify"], ["locate", "--token", "5"], ["locate", "--id", "a.jsonl-1"]):
            run_command(folder, words[0], "tokens", *words[1:])
        with suppress(TokenmillError):
            _look(chance, DatasetView(folder / "tokens"))
        opened = tokenmill.open(folder / "tokens", "train", format=chance.choice(["parquet", "arrow", None]))
        for i in range(min(len(opened), 10)):
            opened[i]

    return attempt


def _look(chance: Random, view: DatasetView) -> None:
    """Asks for all that the page of view shows."""
    by, order = chance.choice(["id", "text", "token"]), chance.choice([{}, {"order": "shortest"}, {"order": "count"}])
    question = Asked({"text": "the", "by": by, "q": "a.jsonl-1" if by == "id" else "the", **order})
    question |= {"set": str(chance.randrange(3)), "i": str(chance.randrange(3))}
    for name in ("info", "items", "item", "links", "search", "vocabulary", "encode"):
        with suppress(TokenmillError, OSError, ValueError):
            getattr(view, name)(question)


def tokenizers(base: Path) -> Try:
    """Folders with a tokenizer.json of one of many shapes, or with a .tiktoken file."""
    shapes = [json.dumps(make()) for make in DOCUMENTS.values()]
    plain = json.loads(shapes[0]) | {"pre_tokenizer": {"type": "Whitespace"}, "decoder": None, "post_processor": None}
    texts = ["<unk>", "<s>", "</s>", *"abcdehotTs ", "##a", "##t", "the", "cat"]
    words = {"unk_token": "<unk>", "vocab": {text: i for i, text in enumerate(texts)}}
    for model in (
        {"type": "WordPiece", **words, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
        {"type": "WordLevel", **words},
        {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [[text, -1.5] for text in texts]},
    ):
        shapes.append(json.dumps(plain | {"added_tokens": plain["added_tokens"][:2], "model": model}))
    rules = struct.pack("<II", 4, 0) + b"a\0"
    shapes.append(json.dumps(json.loads(shapes[-1]) | {"normalizer": {"type": "Precompiled"}}))
    tokenizer("plain").save(base / "saved")
    ranks = (base / "saved/vocab.tiktoken").read_bytes()
    beside: dict[str, Any] = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "chat_template": "{{ messages }}",
            "added_tokens_decoder": {"0": {"content": "<s>", "special": True}},
        },
        "special_tokens_map.json": {"eos_token": {"content": "</s>"}, "additional_special_tokens": ["<x>"]},
        "added_tokens.json": {"<y>": 9000},
    }
    outside = base / "outside"
    files = {name: json.dumps(value) for name, value in beside.items()}
    for name, text in {**files, "tokenizer.json": shapes[0], **dict.fromkeys(_TEMPLATES, "{{ messages }}")}.items():
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text(text)

    def attempt(chance: Random, folder: Path) -> None:
        content, path, pattern = chance.choice(shapes), folder / "tokenizer.json", None
        if chance.random() < 0.2:
            path, pattern = folder / "vocab.tiktoken", chance.choice(["gpt2", "cl100k", r"\w+|\W"])
            path.write_bytes(changed_bytes(chance, ranks))
        elif chance.random() < 0.2:
            path.write_bytes(changed_bytes(chance, content.encode()))
        else:
            change_json(chance, document := json.loads(content))
            if content == shapes[-1]:
                charsmap = base64.b64encode(changed_bytes(chance, rules)).decode()
                document["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap}
            path.write_text(json.dumps(document))
        if pattern is None and chance.random() < 0.4:
            path = folder
            for name, value in beside.items():
                change_json(chance, changed := deepcopy(value))
                (folder / name).write_text(json.dumps(changed))
            if chance.random() < 0.3:
                put_link(chance, folder, outside)
            if chance.random() < 0.1:
                (folder / f"{chance.choice(ODD_NAMES)}.txt").write_text("")
            with suppress(TokenmillError):
                convert(folder, folder / "converted")
            with suppress(TokenmillError):
                copy_folder(folder, folder / "copy")
            with suppress(TokenmillError):
                refuse_links(folder)
                sha256_directory(folder)
        loaded = Tokenizer.load(path, pattern)
        special = chance.choice(["as_text", "allow"])
        ids = loaded.encode_batch([_TEXT, "", "the cat " * 99], threads=1, special=special)
        loaded.decode_batch(ids, threads=1)
        loaded.save(folder / "saved")
        assert Tokenizer.load(folder / "saved").digest == loaded.digest
        run_command(folder, "check", str(path), *(["--pattern", pattern] if pattern else []))

    return attempt


def conversions(base: Path) -> Try:
    """Files of llama.cpp, SentencePiece, GPT-2 and mistral-common, which `convert` reads."""
    tokenizer("plain").save(base / "bytes")
    for name, document in (("bytes", None), ("characters", character_document(PIECES, False, PLAIN, "a"))):
        if document is not None:
            (base / name).mkdir()
            (base / name / "tokenizer.json").write_text(json.dumps(document))
        for form in FORMATS[1:]:
            with suppress(TokenizerError):
                convert(base / name, base / "made" / name, form)
    ranks = read_ranks((base / "bytes/vocab.tiktoken").read_bytes(), "a")
    vocab = [{"rank": i, "token_bytes": base64.b64encode(token).decode()} for i, token in enumerate(ranks)]
    config = {"pattern": r"\w+|\W", "default_vocab_size": len(vocab), "default_num_special_tokens": 2}
    tekken = {"config": config, "vocab": vocab, "special_tokens": [{"rank": 0, "token_str": "<s>"}]}
    made = {one.relative_to(base / "made"): one.read_bytes() for one in (base / "made").rglob("*") if one.is_file()}
    made[Path("tekken.json")] = json.dumps(tekken).encode()

    def attempt(chance: Random, folder: Path) -> None:
        if chance.random() < 0.2:
            keys = [*(key.removeprefix("tokenizer.") for key in FIELDS), *_GGUF_KEYS]
            changes = {chance.choice(keys): _gguf_field(chance) for _ in range(chance.choice([1, 1, 2, 3]))}
            _converted(
                gguf_file(folder / "a.gguf", {"ggml.model": (STRING, chance.choice(["llama", "gpt2"])), **changes})
            )
            return
        name = chance.choice(list(made))
        for beside in made:
            if beside.parent == name.parent:
                (folder / beside.name).write_bytes(made[beside])
        if name.suffix == ".json" and chance.random() < 0.5:
            change_json(chance, document := json.loads(made[name]))
            (folder / name.name).write_text(json.dumps(document))
        else:
            (folder / name.name).write_bytes(changed_bytes(chance, made[name]))
        _converted(folder / ("vocab.json" if name.name == "merges.txt" else name.name))

    return attempt


def _converted(path: Path) -> None:
    convert(path, path.parent / "there", pattern="gpt2")
    Tokenizer.load(path.parent / "there").encode_batch([_TEXT, "the cat " * 99], threads=1)


def _gguf_field(chance: Random, depth: int = 0) -> Field | None:
    """A value of any type, or none."""
    kind = chance.choice([STRING, UINT32, INT32, FLOAT32, BOOL, *[ARRAY] * 6])
    if kind != ARRAY:
        values = {STRING: ["", "a", "gpt-2", "llama"], BOOL: [True], FLOAT32: [1.0, float("nan")]}
        return kind, chance.choice(values.get(kind, [0, 1, 3, 2**31 - 1]))
    if depth == 2:
        return None
    one, n = _gguf_field(chance, depth + 1) or (INT32, 1), chance.choice([0, 1, 4, 4, 4, 5])
    return ARRAY, (one[0], [one[1]] * n)


def templates(base: Path) -> Try:
    """Chat templates: random ones, and shipped ones with a random piece, over random conversations."""
    shipped = [template_text(name) for name in NAMED]

    def attempt(chance: Random, folder: Path) -> None:
        text = template(chance)
        if chance.random() < 0.4:
            known = chance.choice(shipped)
            at = known.find("{", chance.randrange(len(known)))
            text = known[:at] + text + known[at:]
        conversations = [canonical(*a_conversation(chance, tools=True, thinking=True)) for _ in range(3)]
        if is_long := chance.random() < 0.02:  # it writes 1 MB for each of many conversations
            text, conversations = "{{ 'a b ' * 250000 }}" + text, conversations * 500
        (folder / "chat.jinja").write_text(text)
        mask = chance.choice(["assistant", "last", "all"])
        encoder = ChatEncoder(
            tokenizer(chance.choice(["plain", "nfc", "metaspace"])), ChatSettings(text, mask, VARIABLES), "chat.jinja"
        )
        encoder.hold_to(limits := Limits(1 << 22, 1 << 24))
        asked = encoder.ask(pa.array(conversations, pa.large_string()), limits.rendering_bytes_max)
        with closing(asked):
            for encoded in encoder.encode(asked):
                assert all(len(one.as_py()) <= 1 << 23 for one in encoded.texts)
                if is_long:
                    break

    return attempt
