"""Finds the shards of the sources that params.yaml asks for."""

import os
from collections.abc import Sequence, Set
from pathlib import Path

from tokenmill.config.params import Params
from tokenmill.corpus.shards import Shard, hidden_names, is_description, look_for, matching_names, whole
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.layout import RAW_DIRECTORY
from tokenmill_reader.urls import is_url

_N_NAMES_SHOWN = 5


def find_documents(root: Path, params: Params, known: Set[str] = frozenset()) -> list[Shard]:
    """The shards of the project at `root`, sorted by name, each with its source, without source.drop. `known`: names of shards to
    leave out.

    Raises CorpusError as `find_shards` does, and with source.sources_strict for a file below data/raw that no source matches; and
    ParamsError for a shard that two sources match.
    """
    shard_of: dict[str, Shard] = {}
    known = known | _drop(root, params)
    looked = [
        look_for(root, document_source.globs, f"{document_source.section}.glob", document_source, known)
        for document_source in params.document_sources()
    ]
    for shards in looked:
        for shard in shards.shards:
            source = shard.source
            assert source is not None
            other = shard_of.get(shard.name)
            if other is not None and other.source is not None:
                raise ParamsError(
                    "sources",
                    f"{shard.name} is matched by {other.source.section}.glob and by {source.section}.glob; allowed: one source for "
                    "a shard.",
                    "Make one of the globs narrower.",
                )
            shard_of[shard.name] = shard
    whole(looked)
    if params.source.sources_strict and (unread := unread_files(root, params)):
        raise CorpusError(
            f"{words_of_unread(unread)} source.sources_strict refuses that: add a source or a glob for them, or move "
            "them elsewhere.",
            code="TM215",
        )
    return [shard_of[name] for name in sorted(shard_of)]


def unread_files(root: Path, params: Params) -> list[str]:
    """The names of the files below data/raw that no source matches, sorted. Hidden and unfinished files do not count, nor do
    files that describe a folder of documents, and source.drop. Empty if the globs are wrong, which `find_documents` reports."""
    globs = [glob for source in params.document_sources() for glob in source.globs if not is_url(glob)]
    everything = f"{RAW_DIRECTORY}/**/*"
    if everything in globs or not (root / RAW_DIRECTORY).is_dir():
        return []
    try:
        names = set(matching_names(root, everything, "source.glob"))
        unread = {name for name in names if not is_description(root, name, names)}
        unread -= set(matching_names(root, globs, "source.glob"))
    except CorpusError:
        return []
    return sorted(unread - _drop(root, params))


def _drop(root: Path, params: Params) -> set[str]:
    """The name of the list of documents to leave out, if there is one."""
    return set() if params.source.drop is None else {os.path.relpath(root / params.source.drop, root)}


def hidden_files(root: Path, params: Params) -> list[str]:
    """The hidden files and folders below data/raw of which no source reads anything, sorted, without those that each system
    makes. Empty if the globs are wrong or a folder cannot be listed, which `find_documents` reports."""
    try:
        hidden = hidden_names(root, RAW_DIRECTORY) if (root / RAW_DIRECTORY).is_dir() else []
        globs = [glob for source in params.document_sources() for glob in source.globs if not is_url(glob)]
        read = matching_names(root, globs, "source.glob") if hidden and any("/." in glob for glob in globs) else []
    except (CorpusError, OSError):
        return []
    return [name for name in hidden if not (name.endswith("/") and any(one.startswith(name) for one in read))]


def words_of_unread(names: Sequence[str], hidden: Sequence[str] = ()) -> str:
    """Sentences about files below data/raw that no source reads, and about hidden files and folders there; empty for none."""
    sentences = []
    if names:
        more = f" and {len(names) - _N_NAMES_SHOWN:,} more" if len(names) > _N_NAMES_SHOWN else ""
        are = "files in data/raw are" if len(names) > 1 else "file in data/raw is"
        sentences.append(f"{len(names):,} {are} read by no source: {', '.join(names[:_N_NAMES_SHOWN])}{more}.")
    if hidden:
        are = "hidden files or folders in data/raw are" if len(hidden) > 1 else "hidden file or folder in data/raw is"
        sentences.append(f"{len(hidden):,} {are} not read, such as {hidden[0]}: rename it if it is a document.")
    return " ".join(sentences)


def reads_objects(params: Params) -> bool:
    """Whether some documents of the project are in object storage."""
    return any(is_url(glob) for source in params.document_sources() for glob in source.globs)
