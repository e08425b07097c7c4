"""Compares the documents with those that the dataset was made of, to say why a unit is made again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.corpus.shards import Shard
from tokenmill.corpus.units import Unit
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.errors import ValidationError
from tokenmill.layout import TOKENS_DIRECTORY

_N_SHOWN_MAX = 20  # files of each kind, in a text


@dataclass(frozen=True)
class InputChanges:
    """The files that differ from those that the manifest lists, by name. `renamed`: the old name of a file, by its new one;
    `unit_files`: the names of the files of each unit of the dataset."""

    changed: list[str]
    new: list[str]
    removed: list[str]
    renamed: dict[str, str]
    n_unchanged: int
    unit_files: set[tuple[str, ...]]

    def reason(self, unit: Unit) -> str:
        """Why a unit is made again, as far as its files are the reason."""
        names = tuple(piece.shard.name for piece in unit.pieces)
        found = [f"{name} changed" for name in names if name in self.changed]
        found += [f"{name} is new" for name in names if name in self.new]
        if found:
            return ", ".join(found[:3]) + (f" and {len(found) - 3} more files" if len(found) > 3 else "")
        if not self.renamed and names not in self.unit_files:
            return "other files share the unit now"
        return (
            "its files are the same; a parameter, a line of source.drop, the code or an earlier stage's output changed"
        )


def input_changes(
    manifest: Manifest, shards: Sequence[Shard], sha256_of: Callable[[Sequence[Shard]], Mapping[Shard, str]]
) -> InputChanges:
    """What changed since the dataset was made. `sha256_of` is asked for files alone whose length does not tell it."""
    before = {one.name: one for one in manifest.inputs}
    removed = {name: one for name, one in before.items() if name not in {shard.name for shard in shards}}
    lengths = {one.n_bytes for one in removed.values()}
    known = sha256_of(
        [
            shard
            for shard in shards
            if (shard.n_bytes == before[shard.name].n_bytes if shard.name in before else shard.n_bytes in lengths)
        ]
    )
    old_names = {one.sha256: name for name, one in removed.items()}
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
    unit_files = {tuple(rows.name for rows in one.rows) for one in manifest.shards}
    return InputChanges(changed, new, gone, renamed, n_unchanged, unit_files)


def last_manifest(root: Path) -> Manifest | None:
    """The manifest of the dataset in data/tokens, or None where there is none that can be read."""
    try:
        return read_manifest(root / TOKENS_DIRECTORY)
    except ValidationError:
        return None


def as_text(found: InputChanges | None) -> str:
    """Lines for a terminal."""
    if found is None:
        return "There is no dataset to compare the files with."
    lines = []
    for word, names in (
        ("changed", found.changed),
        ("new", found.new),
        ("removed", found.removed),
        ("renamed", [f"{new}, was {old}" for new, old in found.renamed.items()]),
    ):
        lines += [f"  {word:<7}  {name}" for name in names[:_N_SHOWN_MAX]]
        if len(names) > _N_SHOWN_MAX:
            lines.append(f"  {word:<7}  {len(names) - _N_SHOWN_MAX:,} more")
    head = "Files since the dataset was made:" if lines else "The files are those that the dataset was made of."
    return "\n".join([head, *lines, *([f"  {found.n_unchanged:,} unchanged"] if lines else [])])
