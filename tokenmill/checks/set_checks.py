"""Checks the file sets of a dataset: each file holds what the proven documents and the manifest's parameters say, in that order."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tokenmill.dataset.manifest import MANIFEST_FILE, FileSet, Manifest, SetPart
from tokenmill.errors import ValidationError
from tokenmill.file_sets.arrangement import ArrangedSet, Arrangement, Finish, Items, SetFacts, Work, n_tokens_of
from tokenmill.file_sets.items import EncodedUnit
from tokenmill.file_sets.mixture import blends_of, epochs_of
from tokenmill.formats.index import INDEX_FORMAT
from tokenmill.formats.interface import Format, Shape
from tokenmill.formats.table import SET_FORMATS
from tokenmill.storage.atomic import read
from tokenmill.storage.unit_store import unit_key

_REASON_FILE = "reason.txt"
_FORCE = "Run `tokenmill build --force`."


class Wrong(NamedTuple):
    """A file of the dataset, relative to its folder, and what is wrong with it."""

    file: str
    what: str


def wrong_sets(
    manifest: Manifest,
    dataset: Path,
    units: Sequence[EncodedUnit],
    documents: Shape,
    finish: Finish,
    is_done: Callable[[str], bool],
    remove: Callable[[Sequence[str]], None],
    threads: int,
    code: str,
) -> Iterator[Wrong]:
    """Yields what is wrong in the file sets of a dataset whose documents were checked before.

    `units`: the documents' files, with document indexes derived again from them. `documents`: their shape. `finish`, `threads`: see
    Arrangement. `is_done`: whether the result of work with this key is kept. `remove`: deletes the results of these keys. `code`:
    the digest of this code, for the keys. This compares content; digests of files are checked elsewhere.
    """
    files = manifest.files
    if files is None:
        if manifest.sets:
            yield Wrong(MANIFEST_FILE, f"sets: it names file sets, and not how they are arranged. {_FORCE}")
        return
    if unknown := sorted({one.format for one in manifest.sets} - {*SET_FORMATS, INDEX_FORMAT.name}):
        yield Wrong(MANIFEST_FILE, f"sets: {unknown[0]!r} is no format. {_FORCE}")
        return
    if (epochs := epochs_of(manifest.sources, units, files.splits)) != files.epochs:
        yield Wrong(MANIFEST_FILE, f"files.epochs: it says {files.epochs}; its sources have {epochs}. {_FORCE}")
    names = dict.fromkeys(one.format for one in manifest.sets if one.format != INDEX_FORMAT.name)
    formats = [SET_FORMATS[name] for name in names]
    arrangement = Arrangement(files, formats, documents, finish, threads, {"code": code})
    expected = arrangement.sets(units, manifest.tokens_digest())
    if arrangement.packed != manifest.packed:
        yield Wrong(MANIFEST_FILE, f"packed: it says {manifest.packed}; found {arrangement.packed}. {_FORCE}")
    if manifest.format_version > 6:
        for has, says in zip_longest(arrangement.mixture, manifest.mixture):
            if has != says:
                found, said = (None if one is None else one.model_dump() for one in (has, says))
                yield Wrong(MANIFEST_FILE, f"mixture: it says {said}; found {found}. {_FORCE}")
                break
    lacking: list[ArrangedSet] = []
    work: list[tuple[Work, SetPart]] = []
    for one, entry in zip_longest(expected, manifest.sets):
        if wrong := _differ(one, entry, arrangement.shape):
            yield Wrong(MANIFEST_FILE, f"sets: {wrong} {_FORCE}")
            return
        found = []
        for i, (file, part) in enumerate(zip(one.files, entry.parts, strict=True)):
            numbers = [part.n_items, part.n_tokens]
            digests = [some.sha256 for some in part.files]
            key = unit_key(stage="check", items=file.key, files=digests, numbers=numbers)
            do = partial(_check, one.format, dataset / one.folder, one.stem(i), arrangement.shape, file.items, part)
            if all((dataset / some.name).exists() for some in part.files):  # missing files are reported elsewhere
                found.append((Work(f"check {file.name}", key, do), part))
        if one.before and not all(is_done(some.key) for some, _ in found):
            lacking.append(one)
        work += found
    temporary = arrangement.prepare(lacking)
    done = finish([one for one, _ in work])
    remove(temporary)
    for made, (_, part) in zip(done, work, strict=True):
        if reason := read(made.folder / _REASON_FILE).decode():
            yield Wrong(part.files[0].name, reason)
    for one, entry in zip(expected, manifest.sets, strict=True):
        yield from _wrong_shared(one, entry, dataset, arrangement.shape)
    yield from _wrong_blends(manifest, dataset)


def _wrong_blends(manifest: Manifest, dataset: Path) -> Iterator[Wrong]:
    expected = blends_of(manifest.sets)
    if list(expected) != [file.name for file in manifest.blends]:
        yield Wrong(MANIFEST_FILE, f"blends: expected the files {list(expected)}. {_FORCE}")
        return
    for name, text in expected.items():
        if (dataset / name).exists() and read(dataset / name) != text.encode():
            yield Wrong(name, f"not what the sets of the sources give. {_FORCE}")


def _differ(one: ArrangedSet | None, entry: FileSet | None, shape: Shape) -> str | None:
    """Says how the manifest's entry of a set differs from the expected set."""
    if one is None or entry is None:
        return f"it has {'more' if one is None else 'fewer'} file sets than its parameters give."
    expected = (one.format.name, one.split, one.source, one.epoch)
    found = (entry.format, entry.split, entry.source, entry.epoch)
    if expected != found:
        return f"expected a set with format, split, source and epoch {expected}; found {found}."
    names = [[f"{one.folder}/{name}" for name in one.format.files(one.stem(i), shape)] for i in range(len(one.files))]
    found_names = [sorted(file.name for file in part.files) for part in entry.parts]
    if [sorted(some) for some in names] != found_names:
        return f"{one.folder}: expected the files {_some(names)}; found {_some(found_names)}."
    shared = [f"{one.folder}/{name}" for name in one.format.shared if one.files]
    if shared != [file.name for file in entry.shared]:
        return f"{one.folder}: expected the files {shared}; found {[file.name for file in entry.shared]}."
    return None


def _some(names: Sequence[Sequence[str]]) -> str:
    flat = [name for some in names for name in some]
    return ", ".join(flat[:4]) + (f" and {len(flat) - 4:,} more" if len(flat) > 4 else "") if flat else "(none)"


def _check(format: Format, folder: Path, stem: str, shape: Shape, items: Items, part: SetPart, made: Path) -> SetFacts:
    """Compares the items of one part with the expected ones, and writes what is wrong to a file; an empty file if nothing is."""
    n_items = n_tokens = 0
    reason = ""
    try:
        for batch in _same(format, folder, stem, shape, items()):
            n_items += batch.num_rows
            n_tokens += n_tokens_of(batch)
        if (n_items, n_tokens) != (part.n_items, part.n_tokens):
            says = f"{part.n_items:,} items and {part.n_tokens:,} tokens"
            reason = f"{MANIFEST_FILE} says {says}; found {n_items:,} and {n_tokens:,}."
    except ValidationError as error:
        reason = str(error)
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a fault of the machine, not of the file
        reason = f"cannot be read: {error}"
    (made / _REASON_FILE).write_text(reason, encoding="utf-8")
    return SetFacts(n_items, n_tokens)


def _same(
    format: Format, folder: Path, stem: str, shape: Shape, expected: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The expected items, batch by batch, after they were found equal. Raises ValidationError for the first that differs."""
    name = f"{stem}{format.suffixes[0]}"
    found = format.read(folder, stem, shape)
    held: pa.RecordBatch | None = None
    at = 0
    for batch in expected:
        while batch.num_rows:
            while held is None or not held.num_rows:
                held = next(found, None)
                if held is None:
                    raise ValidationError(f"{name}: ends after {at:,} items, expected more.")
            n_rows = min(batch.num_rows, held.num_rows)
            _compare(name, at, batch.slice(0, n_rows), held.slice(0, n_rows))
            yield batch.slice(0, n_rows)
            batch, held, at = batch.slice(n_rows), held.slice(n_rows), at + n_rows
    while held is None or not held.num_rows:
        held = next(found, None)
        if held is None:
            return
    raise ValidationError(f"{name}: holds more than the expected {at:,} items.")


def _compare(name: str, at: int, expected: pa.RecordBatch, found: pa.RecordBatch) -> None:
    for column in found.schema.names:
        right = expected[column]
        left = found[column].cast(right.type)
        if left.equals(right):
            continue
        i = next(i for i in range(len(right)) if left[i].as_py() != right[i].as_py())
        one, other = left[i].as_py(), right[i].as_py()
        place = ""
        if isinstance(one, list):
            k = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
            one, other, place = one[k : k + 5], other[k : k + 5], f" from {k} on"
        raise ValidationError(f"{name}: item {at + i}: {column}{place}: found {one!r}, expected {other!r}.")


def _wrong_shared(one: ArrangedSet, entry: FileSet, dataset: Path, shape: Shape) -> Iterator[Wrong]:
    """Yields the shared files of a set that differ from what their format writes for these parts."""
    if one.format.finish is None or not one.files or not all((dataset / file.name).exists() for file in entry.files):
        return
    with tempfile.TemporaryDirectory(prefix="tokenmill-sets-") as scratch:
        for part in entry.parts:
            for file in part.files:
                (Path(scratch) / Path(file.name).name).symlink_to((dataset / file.name).absolute())
        one.format.finish(Path(scratch), [one.stem(i) for i in range(len(one.files))], shape)
        for file in entry.shared:
            if read(Path(scratch) / Path(file.name).name) != read(dataset / file.name):
                yield Wrong(file.name, f"not what its parts give. {_FORCE}")
