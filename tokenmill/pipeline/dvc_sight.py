"""Refuses what DVC would not see or keep: inputs and parameters that dvc.yaml does not name, and outputs that are in no outs."""

import os
from collections.abc import Sequence
from pathlib import Path

from tokenmill.chat.named import NAMED
from tokenmill.config.params import Params
from tokenmill.corpus.shards import Shard, matching_names
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.layout import DOCUMENT_STAGES, OBJECTS_FILE, PARAMS_FILE, VOCAB_SIZES_DIRECTORY
from tokenmill.storage.urls import StoredObject
from tokenmill.versioning.dvc_stage import DvcStage

_SECTIONS = {
    "count": ("sources", "tokenizer"),
    "train-vocab": ("tokenizer", "encode.chat"),
    "encode": ("sources", "tokenizer", "encode.chat"),
    "validate": ("sources",),
}
"""Parameters that each stage reads and that may be null or empty. The dvc.yaml of an earlier tokenmill may lack them."""


def refuse_unseen(root: Path, params: Params, shards: Sequence[Shard], stage: DvcStage, name: str) -> None:
    """Raises ParamsError if DVC would not notice a change of what the stage reads, or not keep what it makes, and CorpusError if
    source.drop is missing. `shards`: those of the documents."""
    refuse_unseen_parameters(root, params, stage, name)
    if name in DOCUMENT_STAGES:
        _refuse_unseen_shards(shards, stage, name)
        refuse_unseen_objects(root, shards, stage, name)
        if params.source.drop is not None:
            _refuse_unseen_drop(root, params.source.drop, stage, name)
    trim = params.train_vocab.trim
    if name == "train-vocab" and trim is not None and trim.counts is not None and params.tokenizer is None:
        path = Path(os.path.abspath(root / trim.counts))  # noqa: PTH100 — resolve() follows links, which DVC does not
        _refuse_unseen_file(path, "train_vocab.trim.counts", trim.counts, stage, name, [name])
    parity = params.train_vocab.parity
    if name == "train-vocab" and parity is not None and params.tokenizer is None:
        for group, globs in (parity.dev or {}).items():
            for found in matching_names(root, globs, f"train_vocab.parity.dev.{group}"):
                path = Path(os.path.abspath(root / found))  # noqa: PTH100 — as above
                _refuse_unseen_file(path, f"train_vocab.parity.dev.{group}", found, stage, name, [name])
    if name == "encode" and params.encode.vocab_sizes:
        _refuse_untracked(root, stage)


def refuse_unseen_parameters(root: Path, params: Params, stage: DvcStage, name: str) -> None:
    """Raises ParamsError if DVC would not notice a change of a parameter that is set, or of the chat template's file, or if
    params.yaml lacks a key that dvc.yaml names."""
    if lacking := stage.lacking_parameters():
        raise ParamsError(
            PARAMS_FILE,
            f"expected the keys that dvc.yaml names among the params of {name}, since DVC needs them, even as null; missing: "
            f"{', '.join(lacking)}.",
            f"Add them with their defaults, which `tokenmill params` shows, such as `tokenmill params {lacking[0]}`.",
            code="TM103",
        )
    chat = params.encode.chat
    is_set = {
        "sources": bool(params.sources),
        "tokenizer": params.tokenizer is not None,
        "encode.chat": chat is not None,
    }
    unseen = [key for key in _SECTIONS.get(name, ()) if is_set[key] and not stage.sees_parameter(key)]
    if unseen:
        keys = " and ".join(unseen)
        raise ParamsError(
            f"dvc.yaml: stage {name}",
            f"{keys} is set in params.yaml, but is not among the stage's params, so DVC would not see it change.",
            f"Add {keys} to the params of {name} in dvc.yaml.",
            code="TM107",
        )
    if chat is not None and "encode.chat" in _SECTIONS.get(name, ()):
        _refuse_unseen_template(root, chat.template, stage, name)


def refuse_unseen_objects(root: Path, shards: Sequence[Shard], stage: DvcStage, name: str) -> None:
    """Raises ParamsError if some shards are in object storage and DVC would not notice their changes."""
    if any(isinstance(shard.path, StoredObject) for shard in shards):
        path = Path(os.path.abspath(root / OBJECTS_FILE))  # noqa: PTH100 — resolve() follows links, which DVC does not
        _refuse_unseen_file(path, "the list of documents in object storage", OBJECTS_FILE, stage, name, DOCUMENT_STAGES)


def _refuse_unseen_shards(shards: Sequence[Shard], stage: DvcStage, name: str) -> None:
    """Raises ParamsError for a shard whose changes DVC would not notice."""
    for shard in shards:
        glob = f"{shard.section}.glob"
        if isinstance(shard.path, StoredObject) or str(shard.path) in stage.seen:  # abspath of each takes longer
            continue
        path = os.path.abspath(shard.path)  # noqa: PTH100 — resolve() follows links, which DVC does not
        match stage.sight_of(Path(path)):
            case "outside":
                folder = Path(shard.name).parent
                raise ParamsError(
                    f"dvc.yaml: stage {name}",
                    f"{shard.name} matches {glob} but is in none of the stage's deps, so DVC would not see it change.",
                    f"In the deps of {', '.join(DOCUMENT_STAGES)}, replace the folder of documents with {folder}.",
                    code="TM107",
                )
            case "linked":
                raise ParamsError(
                    shard.name,
                    f"matches {glob} through a link to a folder, which DVC does not follow, so it would not see the "
                    "file change.",
                    f"Link the files instead, or name the folder itself in {glob} and in dvc.yaml's deps.",
                    code="TM107",
                )
            case "ignored":
                raise ParamsError(
                    shard.name,
                    f"matches {glob}, but .dvcignore leaves it out, so DVC would not see it change.",
                    f"Take it out of .dvcignore, or make {glob} narrower.",
                    code="TM107",
                )
            case "seen":
                pass


def _refuse_unseen_drop(root: Path, drop: str, stage: DvcStage, name: str) -> None:
    """Raises CorpusError if there is no file source.drop, and ParamsError if DVC would not notice its changes."""
    path = Path(os.path.abspath(root / drop))  # noqa: PTH100 — resolve() follows links, which DVC does not
    if not path.is_file():
        raise CorpusError(
            f"source.drop: {drop}",
            "expected a .csv or .parquet file; found none.",
            "Put it there, or set it to null.",
            code="TM211",
        )
    _refuse_unseen_file(path, "source.drop", drop, stage, name, DOCUMENT_STAGES)


def _refuse_unseen_template(root: Path, template: str, stage: DvcStage, name: str) -> None:
    """Raises ParamsError if the chat template is a file and DVC would not notice its changes."""
    path = Path(os.path.abspath(root / template))  # noqa: PTH100 — resolve() follows links, which DVC does not
    if template not in ("tokenizer", *NAMED) and path.is_file():  # encode reports a missing file
        _refuse_unseen_file(path, "encode.chat.template", template, stage, name, ["train-vocab", "encode"])


def _refuse_unseen_file(path: Path, key: str, file: str, stage: DvcStage, name: str, stages: Sequence[str]) -> None:
    """Raises ParamsError if a file that a parameter names is not in the stage's deps. `stages`: those that depend on it."""
    if stage.sight_of(path) != "seen":
        raise ParamsError(
            f"dvc.yaml: stage {name}",
            f"{key} is {file}, but it is not in the stage's deps, so DVC would not see it change.",
            f"Put {file} into the deps of {', '.join(stages)}.",
            code="TM107",
        )


def _refuse_untracked(root: Path, stage: DvcStage) -> None:
    """Raises ParamsError if DVC would not keep the datasets of `encode.vocab_sizes`."""
    if root / VOCAB_SIZES_DIRECTORY not in stage.outputs:
        raise ParamsError(
            "encode.vocab_sizes",
            f"its datasets are written to {VOCAB_SIZES_DIRECTORY}, which is no output of encode in dvc.yaml.",
            f"Add {VOCAB_SIZES_DIRECTORY} to the outs of encode there.",
            code="TM107",
        )
