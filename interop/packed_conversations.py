"""A packed set of conversations, rendered, encoded and written as the encode stage does it, for the tests of its readers."""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tests.builders.chats import a_conversation, canonical, encoder, tokenizer
from tests.builders.rounds import driven
from tokenmill.config.encode_params import Pack
from tokenmill.corpus.reader import Batch
from tokenmill.dataset.document_index import unit_index
from tokenmill.dataset.entries import Files
from tokenmill.file_sets.arrangement import Arrangement
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.parquet import write_tokens
from tokenmill.formats.tokens import id_type, rows, schema
from tokenmill_reader.formats.items import Shape

LENGTH = 512
_BATCH = 7


class Document(NamedTuple):
    """An encoded conversation, as a trainer should get it if it comes alone."""

    ids: list[int]
    mask: list[int]


class Packed(NamedTuple):
    """The files of a set, without their suffixes, and the conversations that are packed in it."""

    stems: list[Path]
    documents: list[Document]


def documents(n: int) -> list[tuple[str, Document]]:
    """Different conversations of a few turns, as their canonical JSON and encoded with the qwen3 template."""
    chance = random.Random(3)
    found = []
    for i in range(n):
        messages, tools = a_conversation(chance, i % 2 == 0, True)
        question = next(one for one in messages if one["role"] == "user")
        question["content"] = f"{i}: {question['content']}"
        found.append(canonical(messages, tools))
    encoded = encoder("plain", "qwen3").encode_batch(pa.array(found, pa.large_string()))
    made = map(Document, encoded.input_ids.to_pylist(), encoded.loss_mask.to_pylist())
    return list(zip(found, made, strict=True))


def packed(folder: Path, format: str, mode: str = "best_fit", pad_id: int | None = None) -> Packed:
    """Conversations of two units, packed with labels and written in this format. Long ones are cut, but split with `concat`."""
    made = documents(60)
    one = tokenizer("plain")
    kinds = Shape(one.id_max, one.digest, None, None, has_names=True, has_mask=True)
    long = "split" if mode == "concat" else "cut"
    pack = Pack(length=LENGTH, mode=mode, long=long, labels=format == "arrow")
    files = Files(file_bytes=20_000, splits={}, split_group=None, shuffle=None, pack=pack, pad_id=pad_id, epochs={})
    work = Path(tempfile.mkdtemp(dir=folder))
    units = [_unit(work, f"unit-{i}", some) for i, some in enumerate((made[:40], made[40:]))]
    arrangement = Arrangement("encode", files, [SET_FORMATS[format]], kinds, 1, "")
    (arranged,) = driven(arrangement.sets(units, "0" * 64), work)
    driven(arrangement.prepare([arranged]), work)
    below = folder / arranged.folder
    below.mkdir()
    stems = [arranged.stem(i) for i in range(len(arranged.files))]
    for stem, file in zip(stems, arranged.files, strict=True):
        with arranged.format.write(below, stem, arrangement.shape) as add:
            for batch in file.items():
                add(batch)
    if arranged.format.finish is not None:
        arranged.format.finish(below, stems, arrangement.shape)
    return Packed([below / stem for stem in stems], [document for _, document in made])


def _unit(folder: Path, name: str, made: Sequence[tuple[str, Document]]) -> EncodedUnit:
    shape = schema(id_type(tokenizer("plain").id_max), has_names=True, has_mask=True)
    tokens, index = folder / f"{name}.parquet", folder / f"{name}.arrow"
    with write_tokens(tokens, shape) as write, unit_index(index, [0], True, has_mask=True) as add:
        for at in range(0, len(made), _BATCH):
            some = made[at : at + _BATCH]
            batch = Batch(
                at,
                pa.array(["text"] * len(some), pa.large_string()),
                pa.array([f"{name}-{at + i}" for i in range(len(some))], pa.large_string()),
                messages=pa.array([one for one, _ in some], pa.large_string()),
            )
            ids = pa.array([document.ids for _, document in some], pa.large_list(pa.uint32()))
            encoded = rows(batch, ids, shape, pa.array([one.mask for _, one in some], pa.large_list(pa.int8())))
            write(encoded)
            add(batch, encoded)
    return EncodedUnit(f"{name}.parquet", tokens, index, [(f"{name}.jsonl", 0)], [name])
