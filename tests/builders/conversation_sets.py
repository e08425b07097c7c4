"""Units of conversations that a test makes by hand, with a stand-in for what encodes conversations, and file sets of them."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tests.builders.rounds import driven
from tests.builders.trained import TOKENIZER
from tokenmill.chat.answers import AnswerCounts
from tokenmill.config.encode_params import Pack, Shuffle
from tokenmill.corpus.reader import Batch
from tokenmill.dataset.document_index import unit_index
from tokenmill.dataset.entries import (
    ChatEntry,
    Files,
    FileSet,
    InputRows,
    InputShard,
    OutputShard,
    ReadingEntry,
    SetPart,
    TableFile,
)
from tokenmill.dataset.manifest import Manifest
from tokenmill.errors import ChatError
from tokenmill.file_sets.arrangement import ArrangedSet, Arrangement, n_tokens_of
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.formats.by_name import SET_FORMATS
from tokenmill.formats.parquet import write_tokens
from tokenmill.formats.tokens import id_type, rows, schema
from tokenmill_reader.formats.items import Shape

BATCH = 3  # conversations, so that a unit has several record batches


class Conversation(NamedTuple):
    ids: list[int]
    mask: list[int]
    n_messages: int = 2


class EncodedByHand(NamedTuple):
    input_ids: pa.LargeListArray
    loss_mask: pa.LargeListArray
    texts: pa.LargeStringArray
    counts: AnswerCounts


class StandIn:
    """Encodes conversations as texts `role: content` one behind another, and trains the contents of the assistant."""

    def encode_batch(self, conversations: pa.LargeStringArray) -> EncodedByHand:
        all_ids, masks, texts = [], [], []
        for i, one in enumerate(conversations.to_pylist()):
            ids: list[int] = []
            mask: list[int] = []
            text = ""
            for message in json.loads(one)["messages"]:
                if message["content"] == "refused":
                    raise ChatError(i, "this template refuses it")
                for part, trained in (
                    (f"{message['role']}: ", 0),
                    (message["content"] + "<|pad|>", int(message["role"] == "assistant")),
                ):
                    found = TOKENIZER.encode(part, special="allow")
                    ids, mask, text = ids + found, mask + [trained] * len(found), text + part
            all_ids.append(ids)
            masks.append(mask)
            texts.append(text)
        return EncodedByHand(
            pa.array(all_ids, pa.large_list(pa.uint32())),
            pa.array(masks, pa.large_list(pa.int8())),
            pa.array(texts, pa.large_string()),
            AnswerCounts(),
        )


def canonical(*contents: str) -> str:
    """The canonical JSON of a conversation in which user and assistant say these."""
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return json.dumps({"messages": messages}, ensure_ascii=False, separators=(",", ":"))


def write_unit(
    folder: Path, name: str, conversations: Sequence[Conversation], id_max: int, source: str = ""
) -> EncodedUnit:
    """The tokens of one unit and its document index."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = schema(id_type(id_max), has_names=True, has_mask=True)
    tokens, index = folder / f"{name}.parquet", folder / f"{name}.arrow"
    with write_tokens(tokens, shape) as write, unit_index(index, [0], True, has_mask=True) as add:
        for at in range(0, len(conversations), BATCH):
            some = conversations[at : at + BATCH]
            messages = [
                canonical(*(f"{name} {at + i} {k}" for k in range(one.n_messages))) for i, one in enumerate(some)
            ]
            batch = Batch(
                at,
                pa.array(["text"] * len(some), pa.large_string()),
                pa.array([f"{name}-{at + i}" for i in range(len(some))], pa.large_string()),
                messages=pa.array(messages, pa.large_string()),
            )
            ids = pa.array([one.ids for one in some], pa.large_list(pa.uint32()))
            made = rows(batch, ids, shape, pa.array([one.mask for one in some], pa.large_list(pa.int8())))
            write(made)
            add(batch, made)
    content = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (tokens, index)]
    return EncodedUnit(f"{name}.parquet", tokens, index, [(f"{name}.jsonl", 0)], content, source)


def files_of(
    pack: Pack | None = None,
    splits: dict[str, float] | None = None,
    shuffle: Shuffle | None = None,
    pad_id: int | None = None,
    epochs: dict[str, str] | None = None,
    file_bytes: int = 1 << 30,
) -> Files:
    return Files(
        file_bytes=file_bytes,
        splits=splits or {},
        split_group=None,
        shuffle=shuffle,
        pack=pack,
        pad_id=pad_id,
        epochs=epochs or {},
    )


def shape_of_conversations(id_max: int) -> Shape:
    return Shape(id_max, TOKENIZER.digest, None, None, has_names=True, has_mask=True)


def arranged(
    folder: Path,
    units: Sequence[EncodedUnit],
    files: Files,
    formats: Sequence[str],
    id_max: int,
    tokens_digest: str = "0" * 64,
) -> tuple[Arrangement, list[ArrangedSet]]:
    """The arrangement of these units, and its sets, whose items can be read."""
    kinds = [SET_FORMATS[name] for name in formats]
    found = Arrangement("encode", files, kinds, shape_of_conversations(id_max), 1, "")
    sets = driven(found.sets(units, tokens_digest), folder)
    driven(
        found.prepare({file_set.folder: file_set for file_set in sets}, [file_set.folder for file_set in sets]), folder
    )
    return found, sets


def items_of(one: ArrangedSet) -> list[dict[str, Any]]:
    return [row for file in one.files for batch in file.items() for row in batch.to_pylist()]


def write_sets(folder: Path, arrangement: Arrangement, sets: Sequence[ArrangedSet]) -> list[FileSet]:
    """Writes the files of these sets into a dataset's folder, and gives their entries for the manifest."""
    entries = []
    for one in sets:
        directory = folder / one.folder
        directory.mkdir(parents=True)
        parts = []
        for i, file in enumerate(one.files):
            stem = one.stem(i)
            n_items = n_tokens = 0
            with one.format.write(directory, stem, arrangement.shape) as add:
                for batch in file.items():
                    add(batch)
                    n_items, n_tokens = n_items + batch.num_rows, n_tokens + n_tokens_of(batch)
            names = [f"{one.folder}/{name}" for name in one.format.files(stem, arrangement.shape)]
            parts.append(SetPart(files=[described(folder, name) for name in names], n_items=n_items, n_tokens=n_tokens))
        if one.format.finish:
            one.format.finish(directory, [one.stem(i) for i in range(len(one.files))], arrangement.shape)
        shared = [described(folder, f"{one.folder}/{name}") for name in one.format.shared]
        entries.append(
            FileSet(
                format=one.format.name, split=one.split, source=one.source, epoch=one.epoch, parts=parts, shared=shared
            )
        )
    return entries


def described(folder: Path, name: str) -> TableFile:
    content = (folder / name).read_bytes()
    return TableFile(name=name, n_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def manifest_of(
    units: Sequence[EncodedUnit],
    conversations: Sequence[Sequence[Conversation]],
    id_max: int,
    files: Files | None = None,
    sets: Sequence[FileSet] = (),
    packed: dict[str, dict[str, int]] | None = None,
) -> Manifest:
    """The manifest of a dataset of these units."""
    shards = []
    for unit, some in zip(units, conversations, strict=True):
        content = unit.tokens.read_bytes()
        shards.append(
            OutputShard(
                name=unit.file,
                unit="u",
                n_bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                n_documents=len(some),
                n_tokens=sum(len(one.ids) for one in some),
                text_bytes=4 * len(some),
                rows=[InputRows(name=unit.pieces[0][0], first_row=0, first_line=1, n_documents=len(some), n_bad=0)],
                n_trained=sum(sum(one.mask) for one in some),
                tokens_sha256="6" * 64,
            )
        )
    return Manifest(
        engine="by hand",
        tokenizer_digest=TOKENIZER.digest,
        params_digest="8" * 64,
        id_type=str(id_type(id_max)),
        id_max=id_max,
        end_of_document_id=None,
        special_tokens_in_text="as_text",
        n_documents=sum(one.n_documents for one in shards),
        n_tokens=sum(one.n_tokens for one in shards),
        text_bytes=sum(one.text_bytes for one in shards),
        n_bad=0,
        quarantine_sha256="9" * 64,
        source=ReadingEntry(text_column="text", id_column="id", text_separator=None),
        inputs=[InputShard(name=unit.pieces[0][0], n_bytes=1, sha256="7" * 64) for unit in units],
        shards=shards,
        chat=ChatEntry(
            template="{{ messages }}",
            template_name="by hand",
            mask="assistant",
            variables={"enable_thinking": False},
            n_trained=sum(one.n_trained or 0 for one in shards),
        ),
        files=files,
        sets=list(sets),
        packed=packed or {},
    )
