"""A look at the first documents of some files, for `tokenmill doctor`."""

import time
from pathlib import Path

from tokenmill.config.params import Params, Source
from tokenmill.corpus.limits import Limits
from tokenmill.corpus.reader import BadDocument, Shard, read_batches
from tokenmill.corpus.sources import find_documents
from tokenmill.errors import CorpusError, DamagedError, ParamsError
from tokenmill.project.finding import Finding

_N_FILES_MIN, _N_FILES_MAX = 5, 100
_SECONDS_MAX = 1.0
_BATCH_BYTES = 1 << 16
_LIMITS = Limits(document_bytes_max=1 << 24, block_bytes_max=1 << 26)  # what is larger is left to the build


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
    for shard in shards[:: -(-len(shards) // _N_FILES_MAX)]:
        if wrong := _look(shard, params.source):
            found.append(wrong)
        n_read += 1
        if n_read >= _N_FILES_MIN and time.monotonic() > end_s:
            break
    if not found:
        return Finding("text", "ok", f"the first documents of {n_read:,} files can be read")
    first = next((one for one in found if one.state == "wrong"), found[0])
    words = f"{len(found):,} of {n_read:,} files begin with something bad; {first.found}" if n_read > 1 else first.found
    return Finding("text", first.state, words, first.mend)


def _look(shard: Shard, source: Source) -> Finding | None:
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
        return Finding(
            "text",
            "warning" if is_left_out else "wrong",
            f"{shard.name}, {place}: {bad.reason.removesuffix('.')}",
            mend,
        )
    except CorpusError as error:
        if error.code == "TM206":
            return None
        is_left_out = isinstance(error, DamagedError) and source.on_bad_shard == "quarantine"
        return Finding("text", "warning" if is_left_out else "wrong", str(error))
    return None
