"""A look at the first documents of some files, for `tokenmill doctor`."""

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tokenmill.config.params import Params, Source
from tokenmill.corpus.bad_documents import ColumnError
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import BadDocument, Shard, read_batches
from tokenmill.corpus.sources import find_documents
from tokenmill.corpus.units import source_folder
from tokenmill.errors import CorpusError, DamagedError, ParamsError
from tokenmill.layout import RAW_DIRECTORY
from tokenmill.project.finding import Finding

_N_FILES_MIN, _N_FILES_MAX = 5, 100
_SECONDS_MAX = 1.0
_BATCH_BYTES = 1 << 16
_TEXT_COLUMNS = ("text", "content", "body", "document", "raw_content", "markdown", "code", "article", "story")
_LIMITS = Limits(document_bytes_max=1 << 24, block_bytes_max=1 << 26)  # what is larger is left to the build


class _Wrong(NamedTuple):
    """What is wrong with a file. `setting`: as of a BadDocument."""

    finding: Finding
    setting: str | None


class _BadDocumentFound(Exception):
    def __init__(self, bad: BadDocument) -> None:
        self.bad = bad


def first_documents(root: Path, params: Params) -> Finding | None:
    """Whether the first documents of up to 100 files, spread over all, can be read as `params` say; None without files.

    After a second it looks into no more than 5 files."""
    try:
        shards = find_documents(root, params)
    except (CorpusError, ParamsError):
        return None
    end_s = time.monotonic() + _SECONDS_MAX
    n_read, found = 0, []
    looked: list[tuple[Shard, _Wrong | None]] = []
    for shard in shards[:: -(-len(shards) // _N_FILES_MAX)]:
        wrong = _look(shard, params.source)
        looked.append((shard, wrong))
        if wrong:
            found.append(wrong.finding)
        n_read += 1
        if n_read >= _N_FILES_MIN and time.monotonic() > end_s:
            break
    if not found:
        return Finding("text", "ok", f"the first documents of {n_read:,} files can be read")
    first = next((one for one in found if one.state == "wrong"), found[0])
    words = f"{len(found):,} of {n_read:,} files begin with something bad; {first.found}" if n_read > 1 else first.found
    return Finding("text", first.state, words, _named_sources(looked) or first.mend)


def _look(shard: Shard, source: Source) -> _Wrong | None:
    """What is wrong with the first documents of a file."""

    def stop(bad: BadDocument) -> None:
        raise _BadDocumentFound(bad)

    assert shard.source is not None
    try:
        next(read_batches(shard, *shard.source.columns, _BATCH_BYTES, on_bad=stop, limits=_LIMITS), None)
    except _BadDocumentFound as found:
        bad = found.bad
        place = f"row {bad.row}" if bad.line is None else f"line {bad.line}"
        column = f"Set {bad.setting} in params.yaml to a key that all files have." if bad.setting else None
        is_left_out = source.on_bad_document == "quarantine"
        default = "Mend it, or let bad documents be left out: source.on_bad_document: quarantine."
        mend = column or ("A build leaves it out; mend it to have it in the dataset." if is_left_out else default)
        state: Literal["warning", "wrong"] = "warning" if is_left_out else "wrong"
        return _Wrong(
            Finding("text", state, f"{shard.name}, {place}: {bad.reason.removesuffix('.')}", mend), bad.setting
        )
    except CorpusError as error:
        if error.code == "TM206":
            return None
        is_left_out = isinstance(error, DamagedError) and source.on_bad_shard == "quarantine"
        finding = Finding("text", "warning" if is_left_out else "wrong", str(error))
        return _Wrong(finding, error.setting if isinstance(error, ColumnError) else None)
    return None


def _named_sources(looked: Sequence[tuple[Shard, _Wrong | None]]) -> str | None:
    """What to write into params.yaml where the folders of data/raw have their texts in different columns; None where they do
    not, or where a folder is not of one kind."""
    column_of: dict[str, str | None] = {}  # by folder; None: source.text_column
    for shard, wrong in looked:
        source, folder = shard.source, source_folder(shard.name)
        if source is None or source.name or not shard.name.startswith(f"{RAW_DIRECTORY}/"):
            return None
        column = None
        if wrong and (wrong.setting != "source.text_column" or not (column := _text_column(shard))):
            return None
        if column_of.setdefault(folder, column) != column:
            return None
    if len(set(column_of.values())) < 2:
        return None
    named = {}
    for folder, column in sorted(column_of.items()):
        glob = f"{RAW_DIRECTORY}/{folder}/**/*" if folder else f"{RAW_DIRECTORY}/*"
        name = re.sub("[^a-z0-9_-]", "_", folder.lower()).lstrip("_-") or "main"
        named[name] = f"{{glob: {json.dumps(glob)}{f', text_column: {json.dumps(column)}' if column else ''}}}"
    shown = ", ".join(f"{name}: {value}" for name, value in named.items())
    return (
        f"Give each folder its own columns: write `sources: {{{shown}}}` into params.yaml in place of `sources: {{}}`."
    )


def _text_column(shard: Shard) -> str | None:
    """The column or key of a file that seems to have its texts: the first with a usual name that can be read as one."""
    assert shard.source is not None
    _, id_column, separator, _ = shard.source.columns
    for column in _TEXT_COLUMNS:
        if column != id_column:
            try:
                next(read_batches(shard, column, id_column, separator, None, _BATCH_BYTES, limits=_LIMITS), None)
            except CorpusError:
                continue
            return column
    return None
