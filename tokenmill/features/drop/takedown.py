"""Searches a project for remnants of documents that source.drop names, because texts remain in many places outside of the
dataset."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill.artifacts.golden import GOLDEN_FILE
from tokenmill.config.params import Params
from tokenmill.corpus.dropped import DROPPED_FILE, Dropped, none_dropped, read_dropped
from tokenmill.corpus.filter import LISTED_BY
from tokenmill.corpus.quarantine import QUARANTINE_FILE
from tokenmill.dataset.document_index import read_unit_index
from tokenmill.dataset.tables import DOCUMENTS_FILE, UNIT_INDEX_FILE
from tokenmill.errors import CorpusError, ParamsError, PassingError, StorageError, ValidationError, VersionsError
from tokenmill.features.drop.filter.drop_list import DropList
from tokenmill.layout import (
    CHECKPOINT_DIRECTORY,
    DVC_LOCK_FILE,
    PROVENANCE_FILE,
    QUARANTINE_DIRECTORY,
    RAW_DIRECTORY,
    SCRATCH_DIRECTORY,
    TABLES_DIRECTORY,
    TOKENIZER_DIRECTORY,
    UPLOADS_FILE,
    VOCAB_SIZES_DIRECTORY,
)
from tokenmill.quantities import number_of
from tokenmill.stages.dry_run import look_at_count, project_now
from tokenmill.storage.json_files import read_json
from tokenmill.versioning.dvc_repository import cache_directory, remote_names
from tokenmill.versioning.git import git, lines
from tokenmill_reader.checked_parquet import parquet_file
from tokenmill_reader.urls import is_url

_UNITS = f"{SCRATCH_DIRECTORY}/units"
_MD5 = re.compile(r"md5: ([0-9a-f]{32}(?:\.dir)?)")
_VERSION = re.compile(r"@v\d+\.\d+\.\d+")
_N_SHOWN_MAX = 3
_SAMPLES_BYTES_MAX = 1 << 26  # a file of samples is far smaller


@dataclass(frozen=True)
class Remnant:
    """A place that holds dropped documents, or may hold them. `what`: what is in it; `fix`: what removes it."""

    place: str
    what: str
    fix: str


@dataclass
class Takedown:
    """The remnants of dropped documents. `n_lines`: the length of the list. `clean`: places without remnants. `unseen`: places that
    were not searched."""

    n_lines: int
    left: list[Remnant] = field(default_factory=list)
    clean: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def add(self, place: str, what: str, fix: str) -> None:
        """Records a place as clean if `what` is empty, else as one with remnants."""
        if what:
            self.left.append(Remnant(place, what, fix))
        else:
            self.clean.append(place)

    def lines(self) -> Iterator[str]:
        """The lines for a person."""
        yield f"what is left of documents that source.drop names ({number_of(self.n_lines, 'line')}):"
        for one in self.left:
            yield f"  {one.place}: {one.what}. {one.fix}."
        if self.clean:
            yield f"  nothing in: {', '.join(self.clean)}"
        yield f"  not looked into: {', '.join([*self.unseen, 'other clones, backups'])}"


@dataclass(frozen=True)
class _Sought:
    """The documents to search for: the lines that name them, and the documents that the last build left out."""

    lists: Sequence[DropList]
    dropped: Dropped

    @property
    def ids(self) -> set[str]:
        return {line.id for one in self.lists for line in one.lines if line.id is not None}

    @property
    def digests(self) -> set[str]:
        named = {line.sha256 for one in self.lists for line in one.lines if line.sha256 is not None}
        return {one.hex() for one in named | {*self.dropped.table["sha256"].to_pylist()}}

    def n_in(self, ids: pa.Array, digests: pa.Array) -> int:
        """How many of these documents are dropped ones."""
        names = None if pa.types.is_integer(ids.type) else ids.cast(pa.large_string())
        return len({i for one in self.lists for i, _ in one.match(names, digests)})

    def n_samples(self, samples: Mapping[str, str]) -> int:
        """How many of these beginnings of documents belong to dropped ones. `samples`: texts by corpus/FILE/ROW."""
        names = {f"corpus/{shard}/{row}" for shard in self.dropped.shards for row in self.dropped.rows_of(shard)}
        digests = self.digests
        return sum(
            name in names or hashlib.sha256(text.encode()).hexdigest() in digests for name, text in samples.items()
        )


def takedown(root: Path, params: Params) -> Takedown | None:
    """Finds what is left in the project at `root` of the documents that source.drop names; None without such documents. Raises
    CorpusError and ParamsError."""
    listed_lines = DropList.read(root, params.source.drop, params.has_ids)
    dropped = none_dropped()
    unread = []
    try:
        dropped = read_dropped(root / TABLES_DIRECTORY / DROPPED_FILE).by(LISTED_BY)
    except ValidationError as error:
        unread.append(f"the input files ({str(error).removesuffix('.')})")
    if not listed_lines.lines and not dropped.shards:
        return None
    wanted = _Sought([listed_lines, DropList.recorded(dropped, DROPPED_FILE)], dropped)
    remains = Takedown(len(listed_lines.lines), unseen=unread)
    _documents(remains, root, wanted)
    _quarantine(remains, root, wanted)
    _samples(remains, root, params, wanted)
    _units(remains, root, params, wanted)
    _cache(remains, root, wanted)
    _git(remains, root, wanted)
    _published(remains, root)
    return remains


def _documents(remains: Takedown, root: Path, wanted: _Sought) -> None:
    for shard in wanted.dropped.shards:
        if is_url(shard) or (root / shard).exists():
            rows = wanted.dropped.rows_of(shard)
            n = f"{len(rows):,} of the documents, the first in row {rows[0]}"
            fix = "Delete them from the file, and run `tokenmill build`. If DVC tracks the file, `dvc add` it again"
            remains.add(shard, f"the input file has {n}", fix)
    index = root / TABLES_DIRECTORY / DOCUMENTS_FILE
    if index.exists() and _holds(index, wanted):
        what = "some have documents that the list names and the last build did not leave out"
        remains.add("the input files", what, "Run `tokenmill build`, and verify again")
    elif not wanted.dropped.shards and not remains.unseen:
        remains.add("the input files", "", "")


def _quarantine(remains: Takedown, root: Path, wanted: _Sought) -> None:
    """Rejected documents have no digest that a line could name, so their bytes are searched for the ids."""
    path = root / QUARANTINE_DIRECTORY / QUARANTINE_FILE
    n = 0
    if path.exists():
        ids = [json.dumps(id, ensure_ascii=False)[1:-1].encode() for id in wanted.ids]
        with parquet_file(path) as file:
            for batch in file.iter_batches(columns=["raw"]):
                n += sum(raw is not None and any(id in raw for id in ids) for raw in batch["raw"].to_pylist())
    what = f"the list has an id in {number_of(n, 'rejected document')}" if n else ""
    remains.add(f"{QUARANTINE_DIRECTORY}/{QUARANTINE_FILE}", what, "Delete them from the input files, and build")


def _samples(remains: Takedown, root: Path, params: Params, wanted: _Sought) -> None:
    """The beginnings of documents that a tokenizer is tested with."""
    taken = params.tokenizer is not None
    fix = (
        "The tokenizer was made elsewhere: take a version that was trained without the documents (`tokenizer` in params.yaml)"
        if taken
        else "Train it again: `dvc unfreeze train-vocab` if it is frozen, then `tokenmill build`"
    )
    folders = [root / TOKENIZER_DIRECTORY, *(root / VOCAB_SIZES_DIRECTORY).glob("*/tokenizer")]
    golden = [path for folder in folders for path in sorted(folder.rglob(GOLDEN_FILE))]
    for path in [*golden, root / PROVENANCE_FILE]:
        if path.exists():
            n = wanted.n_samples(_samples_in(path))
            what = f"{n:,} of its samples are beginnings of the documents" if n else ""
            remains.add(path.relative_to(root).as_posix(), what, fix if path in golden else "Run `tokenmill build`")


def _samples_in(path: Path) -> dict[str, str]:
    """The samples in a golden.json or provenance.json, by name; none in another file."""
    try:
        content: Any = read_json(path)
        if "vectors" in content:
            return {
                vector["name"]: vector["text"] for vector in content["vectors"] if vector["name"].startswith("corpus/")
            }
        return {str(name): str(text) for name, text in content["samples"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _units(remains: Takedown, root: Path, params: Params, wanted: _Sought) -> None:
    folders = [path for path in (root / _UNITS).glob("??/*") if path.is_dir()]
    n_held = n_counts = 0
    used = _used_counts(root, params) if any(_has_counts(folder) for folder in folders) else set()
    for folder in folders:
        index = folder / UNIT_INDEX_FILE
        if index.exists():
            table = read_unit_index(index, ["id", "sha256"])
            ids, digests = (table[name].combine_chunks() for name in ("id", "sha256"))
            n_held += bool(wanted.n_in(ids, digests))
        elif _has_counts(folder):
            n_counts += folder.name not in used
    words = []
    if n_held:
        words.append(f"the documents are in {number_of(n_held, 'unit')} of earlier builds")
    if n_counts:
        words.append(f"{number_of(n_counts, 'earlier file')} of counts may hold pieces of their text")
    remains.add(_UNITS, ", and ".join(words), f"Run `rm -rf {_UNITS}`: the next build recomputes what it needs")
    checkpoint = root / CHECKPOINT_DIRECTORY
    has_words = checkpoint.is_dir() and any(checkpoint.iterdir())
    what = "the checkpoint of an interrupted training may hold pieces of their text" if has_words else ""
    remains.add(CHECKPOINT_DIRECTORY, what, f"Run `rm -rf {CHECKPOINT_DIRECTORY}`")


def _used_counts(root: Path, params: Params) -> set[str]:
    """The keys of the counts that the present files use; none if these cannot be read, so that all counts are named."""
    try:
        return set() if params.tokenizer else {one.task.key for one in look_at_count(project_now(root, params))}
    except (CorpusError, ParamsError, PassingError, StorageError):
        return set()


def _has_counts(folder: Path) -> bool:
    return any(folder.glob("counts.*"))


def _cache(remains: Takedown, root: Path, wanted: _Sought) -> None:
    """The files in DVC's cache that nothing in the workspace uses: earlier versions of outputs and of tracked documents."""
    try:
        cache = cache_directory(root)
    except VersionsError as error:
        remains.add(
            "DVC's cache",
            f"it could not be looked at: {str(error).removesuffix('.')}",
            "Correct that, and verify again",
        )
        return
    used = set(_used(root, cache))
    n_unused = n_held = 0
    for path in sorted((cache / "files/md5").glob("??/*")):
        if path.parent.name + path.name not in used and not path.name.endswith(".dir"):
            n_unused += 1
            n_held += _holds(path, wanted)
    what = ""
    if n_unused:
        held = (
            f"at least {n_held:,} of which {'has' if n_held == 1 else 'have'} the documents"
            if n_held
            else "which may have them"
        )
        what = f"{number_of(n_unused, 'file')} of earlier versions, {held}"
    remains.unseen += [
        f"the DVC remote {remote_name} (`dvc gc --workspace --cloud --remote {remote_name}`)"
        for remote_name in remote_names(root)
    ]
    name = cache.relative_to(root).as_posix() if cache.is_relative_to(root) else str(cache)
    fix = "Run `dvc gc --workspace` (with --cloud also in the remote): it deletes all versions but the present one"
    remains.add(f"DVC's cache ({name})", what, fix)


def _used(root: Path, cache: Path) -> Iterator[str]:
    """The names of the files in DVC's cache that dvc.lock and the .dvc files of the project need."""
    for path in [root / DVC_LOCK_FILE, *root.glob("*.dvc"), *(root / "data").rglob("*.dvc")]:
        for md5 in _MD5.findall(path.read_text(encoding="utf-8")) if path.is_file() else ():
            yield md5
            folder = cache / "files/md5" / md5[:2] / md5[2:]
            if md5.endswith(".dir") and folder.exists():
                yield from (one["md5"] for one in read_json(folder))


def _holds(path: Path, wanted: _Sought) -> bool:
    """Whether a file is a document index that lists dropped documents, or has samples of them."""
    with path.open("rb") as file:
        head = file.read(4)
    if head != b"PAR1":
        may_be_samples = head[:1] == b"{" and path.stat().st_size <= _SAMPLES_BYTES_MAX
        return may_be_samples and wanted.n_samples(_samples_in(path)) > 0
    try:
        with parquet_file(path) as table:
            if not {"id", "sha256", "shard", "file"} <= set(table.schema_arrow.names):
                return False
            batches = table.iter_batches(columns=["id", "sha256"])
            return any(wanted.n_in(batch["id"], batch["sha256"]) for batch in batches)
    except (OSError, ValueError, pa.ArrowException):
        return False


def _git(remains: Takedown, root: Path, wanted: _Sought) -> None:
    """The files of documents and of samples that a commit has."""
    places = [
        RAW_DIRECTORY,
        *(name for name in wanted.dropped.shards if not is_url(name)),
        f"{TOKENIZER_DIRECTORY}/{GOLDEN_FILE}",
    ]
    added = ("--name-only", "--diff-filter=A", "--no-renames")
    try:
        listed = git(root, "log", "--all", "--format=", *added, "-z", "--relative", "--", *places)
    except VersionsError as error:  # such as outside of git
        remains.unseen.append(f"git's history ({str(error).removesuffix('.')})")
        return
    known = sorted({name.strip("\n") for name in listed.split("\0")} - {""})
    known = [name for name in known if Path(name).name not in (".gitignore", ".gitkeep") and not name.endswith(".dvc")]
    what = f"commits have {_first(known)}" if known else ""
    fix = "Rewrite the history without the file (`git filter-repo --invert-paths --path FILE`), and push it by force"
    remains.add("git's history", what, fix)


def _first(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _N_SHOWN_MAX:,} more" if len(names) > _N_SHOWN_MAX else ""
    return f"{', '.join(names[:_N_SHOWN_MAX])}{more}"


def _published(remains: Takedown, root: Path) -> None:
    fix = (
        "Those made before have the documents: delete their tags, then `dvc gc --workspace --cloud`; tell who took them"
    )
    try:
        tags = [line for line in lines(root, "tag", "--list") if _VERSION.search(line)]
        remains.add("published versions", _first(tags), fix)
    except VersionsError as error:
        remains.unseen.append(f"published versions ({str(error).removesuffix('.')})")
    path = root / UPLOADS_FILE
    try:
        uploads: Any = read_json(path) if path.exists() else {}
        urls = [str(url) for upload in uploads.values() for url in upload["urls"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        remains.unseen.append(f"uploaded datasets ({UPLOADS_FILE} cannot be read)")
        return
    fix = "Those made before have the documents: delete them (`tokenmill gc PLACE`)"
    remains.add("uploaded datasets", _first(urls), fix)
