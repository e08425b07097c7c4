"""Compares the files of documents with those that outputs were made of."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tokenmill.corpus.provenance import read_provenance
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Unit
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.errors import CountsError, ValidationError
from tokenmill.layout import PROVENANCE_FILE, TOKENS_DIRECTORY
from tokenmill.quantities import number_of

_N_SHOWN_MAX = 20  # files of each kind, in a text


@dataclass(frozen=True)
class InputChanges:
    """How the document files differ from the earlier ones, by name. `renamed`: old names by new ones. `unit_files`: the names of
    each earlier unit's files."""

    changed: list[str]
    new: list[str]
    removed: list[str]
    renamed: dict[str, str]
    n_unchanged: int
    unit_files: set[tuple[str, ...]]

    def of_files(self, unit: Unit) -> str | None:
        """Says which files of a unit are new or changed; None if none is."""
        names = [piece.shard.name for piece in unit.pieces]
        words = [f"{name} changed" for name in names if name in self.changed]
        words += [f"{name} is new" for name in names if name in self.new]
        if not words:
            return None
        return ", ".join(words[:3]) + (f" and {number_of(len(words) - 3, 'more file')}" if len(words) > 3 else "")

    def had(self, unit: Unit) -> bool:
        """Whether an earlier unit had the same files, under whatever names."""
        names = (piece.shard.name for piece in unit.pieces)
        return tuple(self.renamed.get(name, name) for name in names) in self.unit_files

    def __str__(self) -> str:
        tally = {
            "new": len(self.new),
            "changed": len(self.changed),
            "removed": len(self.removed),
            "renamed": len(self.renamed),
        }
        told = ", ".join(f"{n:,} {what}" for what, n in tally.items() if n)
        return f"files of documents: {told}" if told else ""


class EarlierFile(Protocol):
    """A file of documents as it was when it was read."""

    @property
    def name(self) -> str: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def sha256(self) -> str: ...


def input_changes(
    earlier: Iterable[EarlierFile],
    shards: Sequence[Shard],
    sha256_of: Callable[[Sequence[Shard]], Mapping[Shard, str]],
    unit_files: Iterable[tuple[str, ...]] = (),
) -> InputChanges:
    """Compares the shards with the `earlier` files. `sha256_of` is called only for files whose length did not change. `unit_files`:
    the names of each earlier unit's files."""
    before = {earlier_file.name: earlier_file for earlier_file in earlier}
    removed = {
        name: earlier_file for name, earlier_file in before.items() if name not in {shard.name for shard in shards}
    }
    lengths = {earlier_file.n_bytes for earlier_file in removed.values()}
    known = sha256_of(
        [
            shard
            for shard in shards
            if (shard.n_bytes == before[shard.name].n_bytes if shard.name in before else shard.n_bytes in lengths)
        ]
    )
    old_names = {earlier_file.sha256: name for name, earlier_file in removed.items()}
    changed, new, renamed = [], [], {}
    for shard in shards:
        digest = known.get(shard)
        if shard.name in before:
            if digest != before[shard.name].sha256:
                changed.append(shard.name)
        elif digest in old_names:
            renamed[shard.name] = old_names[digest]
        else:
            new.append(shard.name)
    gone = sorted(removed.keys() - set(renamed.values()))
    n_unchanged = len(shards) - len(changed) - len(new) - len(renamed)
    return InputChanges(changed, new, gone, renamed, n_unchanged, set(unit_files))


def changes_since(
    manifest: Manifest, shards: Sequence[Shard], sha256_of: Callable[[Sequence[Shard]], Mapping[Shard, str]]
) -> InputChanges:
    """Compares the shards with the input files of a dataset; see `input_changes`."""
    unit_files = (tuple(rows.name for rows in shard.rows) for shard in manifest.shards)
    return input_changes(manifest.inputs, shards, sha256_of, unit_files)


def earlier_inputs(root: Path, stage: str) -> Iterable[EarlierFile]:
    """The document files from which a stage's outputs were made; where these are lost or have no record, as counts with an imported
    tokenizer, those of another stage. Empty if no record can be read."""
    readers = [partial(_inputs_of_dataset, root), partial(_inputs_of_counts, root)]
    for read in reversed(readers) if stage == "count" else readers:
        try:
            return read()
        except (CountsError, ValidationError, OSError):
            continue
    return []


def _inputs_of_counts(root: Path) -> Iterable[EarlierFile]:
    return read_provenance(root / PROVENANCE_FILE).shards


def _inputs_of_dataset(root: Path) -> Iterable[EarlierFile]:
    return read_manifest(root / TOKENS_DIRECTORY).inputs


def last_manifest(root: Path) -> Manifest | None:
    """The manifest of the dataset in data/tokens; None if there is no readable one."""
    try:
        return read_manifest(root / TOKENS_DIRECTORY)
    except ValidationError:
        return None


def lines_of(changes: InputChanges | None) -> list[str]:
    """Lines for a terminal."""
    if changes is None:
        return ["There is no dataset to compare the files with."]
    lines = []
    for word, names in (
        ("changed", changes.changed),
        ("new", changes.new),
        ("removed", changes.removed),
        ("renamed", [f"{new}, was {old}" for new, old in changes.renamed.items()]),
    ):
        lines += [f"  {word:<7}  {name}" for name in names[:_N_SHOWN_MAX]]
        if len(names) > _N_SHOWN_MAX:
            lines.append(f"  {word:<7}  {len(names) - _N_SHOWN_MAX:,} more")
    head = "Files since the dataset was made:" if lines else "The files are those that the dataset was made of."
    return [head, *lines, *([f"  {changes.n_unchanged:,} unchanged"] if lines else [])]
