"""A mixture of named sources: how many passes over each it has, and the blend files that say so to trainers."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from tokenmill.config.sources import DocumentSource
from tokenmill.corpus.text_digests import text_keys
from tokenmill.dataset.document_index import read_unit_index
from tokenmill.dataset.entries import FileSet, SourceEntry
from tokenmill.dataset.splits import epochs_of_budget
from tokenmill.errors import ParamsError
from tokenmill.file_sets.items import Choice, EncodedUnit


def epochs_of(
    sources: Iterable[DocumentSource | SourceEntry], units: Sequence[EncodedUnit], splits: Mapping[str, float]
) -> dict[str, str]:
    """How many passes over each named source the first split has, as fractions like "3/2"; nothing without names.

    A source without `epochs` and `tokens` has one. A budget of tokens gives as many passes as do not exceed it. Raises ParamsError
    for a budget of a source without tokens.
    """
    epochs_by_source = {}
    for source in sources:
        if source.name is None:
            continue
        epochs = Fraction(str(source.epochs or 1))  # 0.3 is three tenths, and not the float beside it
        if source.tokens is not None:
            of_source = [unit for unit in units if unit.source == source.name]
            epochs = _epochs_of_budget(source.name, source.tokens, of_source, Choice(next(iter(splits), None), splits))
        epochs_by_source[source.name] = str(epochs)
    return epochs_by_source


def _epochs_of_budget(name: str, tokens: int, units: Sequence[EncodedUnit], choice: Choice) -> Fraction:
    lengths, keys = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for unit in units:
        index = read_unit_index(unit.index, ["n_tokens", "sha256", "group"])
        is_chosen = choice.of(unit, index)
        lengths.append(index["n_tokens"].to_numpy()[is_chosen])
        keys.append(text_keys(index["sha256"].combine_chunks())[is_chosen])
    try:
        return epochs_of_budget(np.concatenate(lengths), np.concatenate(keys), tokens, name)
    except ValueError as error:
        raise ParamsError(f"sources.{name}.tokens", f"{error} Add documents, or remove the source.") from None


def blends_of(sets: Sequence[FileSet]) -> dict[str, str]:
    """The text of each blend file, by its name in the dataset's folder: for Megatron `blend.txt`, weights and data paths in turns,
    as its data-args-path takes them; for OLMo-core `blend.yaml`, a SourceMixtureList.

    There is one for each split of these formats whose sources have sets of their own. A weight is a number of tokens, so a
    source that a mixture has twice has twice the weight. Paths are relative to the dataset's folder.
    """
    sets_of: dict[str, list[FileSet]] = {}
    for file_set in sets:
        if file_set.source is not None and file_set.format in _BLEND_FILES:
            folder = "/".join([file_set.format, *([file_set.split] if file_set.split else [])])
            sets_of.setdefault(f"{folder}/{_BLEND_FILES[file_set.format]}", []).append(file_set)
    return {
        name: (_megatron if sets_of_file[0].format == "megatron" else _olmo)(sets_of_file)
        for name, sets_of_file in sets_of.items()
    }


_BLEND_FILES = {"megatron": "blend.txt", "olmo": "blend.yaml"}


def _megatron(sets: Sequence[FileSet]) -> str:
    lines = [
        f"{part.n_tokens} {part.files[0].name.rpartition('.')[0]}\n" for file_set in sets for part in file_set.parts
    ]
    return "".join(lines)


def _olmo(sets: Sequence[FileSet]) -> str:
    tokens = {file_set.source: sum(part.n_tokens for part in file_set.parts) for file_set in sets}
    total = sum(tokens.values())
    lines = ["sources:\n"]
    for file_set in sets:
        if not tokens[file_set.source]:
            continue
        lines.append(
            f"  - source_name: {file_set.source}\n    target_ratio: {tokens[file_set.source] / total:.12g}\n    paths:\n"
        )
        names = [file.name for part in file_set.parts for file in part.files if file.name.endswith(".npy")]
        lines += [f"      - {name}\n" for name in names]
    return "".join(lines)
