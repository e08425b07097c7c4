"""Says why a stage or a unit is made again, in the same words for `status`, `plan` and `build -v`."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from tokenmill.artifacts.golden import GOLDEN_FILE
from tokenmill.chat.named import NAMED
from tokenmill.config.params import Params
from tokenmill.corpus.dropped import starts_of
from tokenmill.corpus.units import Unit
from tokenmill.dataset.manifest import Manifest, read_manifest
from tokenmill.errors import ValidationError
from tokenmill.layout import (
    COUNTS_FILE,
    LOCK_FILE,
    OBJECTS_FILE,
    OUTPUT_DIRECTORIES,
    PARAMS_FILE,
    REPORT_FILE,
    STAGES,
    TOKENIZER_DIRECTORY,
    TOKENS_DIRECTORY,
)
from tokenmill.pipeline.input_changes import InputChanges, last_manifest
from tokenmill.storage.json_files import read_json
from tokenmill.versioning.dvc_stage import NEVER_BUILT, Change

CauseKind = Literal[
    "never built",
    "forced",
    "code",
    "documents",
    "parameter",
    "drop list",
    "chat template",
    "counts",
    "tokenizer",
    "dataset",
    "follows",
    "input",
    "output",
    "command",
]


class Cause(NamedTuple):
    """A reason why a stage is made again. `key`: the parameter that changed, with dots. `has_effect`: whether the outputs may
    become others than those recorded: lost ones are made again as they were, and an imported tokenizer ignores counts."""

    kind: CauseKind
    words: str
    key: str = ""
    has_effect: bool = True

    @property
    def decides_documents(self) -> bool:
        """Whether the same files may now give other documents, or the earlier files are unknown."""
        return self.kind in ("never built", "code", "drop list") or bool(_SOURCE.match(self.key))


NEVER = Cause("never built", "never built")
FORCED = Cause("forced", "forced by --force")
CODE = Cause("code", "code changed")
DROP_LIST = Cause("drop list", "drop list changed")
TEMPLATE = Cause("chat template", "chat template changed")
TOKENIZER = Cause("tokenizer", "tokenizer changed")
TOKENIZER_FILES = Cause("input", "files of the tokenizer changed, but not its ids")
COUNTS = Cause("counts", "counts changed")
COUNTS_FILES = Cause("counts", "files beside the counts changed, but not the counts")
DATASET = Cause("dataset", "dataset changed")

_OUTPUTS = {"deleted": "outputs deleted", "not in cache": "outputs not in DVC's cache"}
_N_SHOWN_MAX = 3  # outputs

_SOURCE = re.compile(r"source\.(?!glob$|unit_bytes_)|sources\b")
_SELECTING = re.compile(r"source\.(glob|format)$|sources\b")
"""The parameters that decide which files are documents."""

_NO_UNIT = re.compile(
    r"(source\.(glob|drop|license|sources_strict)|sources\.[^.]+\.(glob|license|epochs|tokens)|tokenizer"
    r"|count\.(count_min|approximate|partitions)|encode\.(formats|file_bytes|min_parts|splits|shuffle|pack|vocab_sizes)"
    r"|validate\.(language_column|references|gates))(\.|$)"
)
"""The parameters that decide no bytes of units, by their keys. Each other one may be why a unit is made again."""

_NO_COUNTS = re.compile(
    r"((source|sources\.[^.]+)\.(keep_columns|special_tokens_in_text)"
    r"|train_vocab\.(extend\.old_glob|trim\.(keep|min_count|counts|chosen)))(\.|$)"
)
"""The further parameters that decide no bytes of count's units."""

_CUTTING = re.compile(r"source\.unit_bytes_|sources\.[^.]+(\.glob)?$")
"""The parameters that decide which files share a unit."""

_OF_IMPORT = re.compile(r"(tokenizer|encode\.chat)(\.|$)")
"""The parameters that have an effect on an imported tokenizer."""

_OF_COUNTING: tuple[CauseKind, ...] = ("documents", "parameter", "drop list", "input", "command")
"""With an imported tokenizer nothing is counted, so these causes change nothing of count, except for the parameter `tokenizer`."""

_WHOLE_STAGE: tuple[CauseKind, ...] = ("code", "parameter", "tokenizer", "chat template", "drop list")
"""The causes that may affect units with unchanged files. The first that applies is reported."""


def causes_of(
    stage: str,
    changes: Sequence[Change],
    root: Path,
    params: Params,
    code: Cause | None,
    documents: Callable[[Path], str | None],
    further_causes: Iterable[Cause] = (),
) -> list[Cause]:
    """The causes for which a stage has to run; empty if it is up to date. `changes`: what DVC found. `code`: the change of the
    stage's code, None if there is none. `documents`: says how the documents in a folder changed; None if they did not.
    `further_causes`: causes that DVC was not asked for."""
    if NEVER_BUILT in changes:
        return [NEVER]
    causes = [*([] if code is None else [code]), *further_causes]
    outputs: dict[str, list[str]] = {}
    for change in changes:
        match change.kind:
            case "parameter":
                causes += _of_parameter(change, code)
            case "input":
                causes.append(_of_input(stage, change, root, params, documents))
            case "output":
                outputs.setdefault(_OUTPUTS.get(change.how, "outputs changed since they were built"), []).append(
                    change.path
                )
            case "command":
                causes.append(Cause("command", "command in dvc.yaml changed"))
            case "always":
                causes.append(Cause("command", "dvc.yaml says always_changed"))
    for what, paths in outputs.items():
        rest = f" and {len(paths) - _N_SHOWN_MAX} more" if len(paths) > _N_SHOWN_MAX else ""
        words = f"{what}: {', '.join(paths[:_N_SHOWN_MAX])}{rest}"
        causes.append(Cause("output", words, has_effect=stage not in STAGES))
    if not any(cause.kind == "documents" for cause in causes) and any(_SELECTING.match(cause.key) for cause in causes):
        causes += [Cause("documents", changed)] if (changed := documents(root)) else []
    kinds = get_args(CauseKind)
    in_order = sorted(dict.fromkeys(causes), key=lambda cause: kinds.index(cause.kind))
    return in_order if params.tokenizer is None else [_with_import(stage, cause) for cause in in_order]


def inputs_that_stay(changes: Iterable[Change], causes: Mapping[str, Sequence[Cause]]) -> list[Change]:
    """The changes without those of outputs that earlier stages make again first. `causes`: those of the earlier stages."""
    made_again = {folder for stage, some in causes.items() if some for folder in OUTPUT_DIRECTORIES.get(stage, ())}
    return [change for change in changes if change.kind != "input" or change.path not in made_again]


def stages_to_follow(before: Sequence[str], causes: Mapping[str, Sequence[Cause]]) -> list[str]:
    """The stages `before` another one that would run and may change their outputs. `causes`: those of each stage."""
    return [stage for stage in before if any(cause.has_effect for cause in causes[stage])]


def follows(stage: str, own: Sequence[Cause], after: Sequence[str]) -> list[Cause]:
    """The cause that earlier stages would run. `after`: those that the stage follows. `own`: its own causes; if there are any, the
    result names only a tokenizer that may change."""
    if not after or NEVER in own:
        return []
    if "train-vocab" in after and stage in STAGES:
        return [Cause("follows", "follows train-vocab: the tokenizer may change")]
    return [] if own else [Cause("follows", f"follows {after[0]}")]


def as_words(causes: Iterable[Cause]) -> list[str]:
    """The text of each cause."""
    return [cause.words for cause in causes]


def _of_parameter(change: Change, code: Cause | None) -> list[Cause]:
    if change.path == LOCK_FILE:
        if change.key.startswith("code."):
            return [] if code else [CODE]
        return [Cause("input", "pinned tokenizer changed")]
    if change.path != PARAMS_FILE:
        return [Cause("parameter", f"parameter {change.key} of {change.path} changed", change.key)]
    return [DROP_LIST if change.key == "source.drop" else _parameter(change.key)]


def _parameter(key: str) -> Cause:
    return Cause("parameter", f"parameter {key} changed", key)


def _with_import(stage: str, cause: Cause) -> Cause:
    """The cause in a project with an imported tokenizer, where nothing is counted or learned."""
    match stage:
        case "count":
            is_unused = cause.kind in _OF_COUNTING and cause.key != "tokenizer"
        case "train-vocab":
            is_unused = cause.kind == "counts" or (cause.kind == "parameter" and not _OF_IMPORT.match(cause.key))
        case _:
            is_unused = False
    if not is_unused:
        return cause
    words = f"{cause.words} (it has no effect, since the tokenizer is imported)"
    return cause._replace(words=words, has_effect=False)


def _of_input(stage: str, change: Change, root: Path, params: Params, documents: Callable[[Path], str | None]) -> Cause:
    chat = params.encode.chat
    output = {
        TOKENIZER_DIRECTORY: TOKENIZER,
        Path(COUNTS_FILE).parent.as_posix(): COUNTS,
        TOKENS_DIRECTORY: DATASET,
    }.get(change.path)
    if output is not None:
        if change.how == "deleted":
            return Cause(output.kind, f"{change.path} deleted")
        if output is COUNTS and change.files and Path(COUNTS_FILE).name not in change.files:
            return COUNTS_FILES
        return TOKENIZER_FILES if output is TOKENIZER and _has_the_ids(root, stage) else output
    if change.path == params.source.drop:
        return DROP_LIST
    if chat is not None and change.path == chat.template and chat.template not in ("tokenizer", *NAMED):
        return TEMPLATE
    if change.path.startswith(("core/", "tokenmill/")):
        return CODE
    if change.path == OBJECTS_FILE:
        return Cause("documents", "files of documents: objects in storage changed")
    if words := documents(root / change.path):
        return Cause("documents", words)
    how = "deleted" if change.how == "deleted" else "changed"
    return Cause("input", f"{change.path} {how}")


def _has_the_ids(root: Path, stage: str) -> bool:
    """Whether the tokenizer in data/tokenizer is the one that the stage's outputs were made with."""
    try:
        now = read_json(root / TOKENIZER_DIRECTORY / GOLDEN_FILE)["tokenizer_digest"]
        if stage == "validate":
            return bool(read_json(root / REPORT_FILE)["tokenizer_digest"] == now)
        return stage == "encode" and read_manifest(root / TOKENS_DIRECTORY).tokenizer_digest == now
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return False


def decides_units(stage: str, key: str) -> bool:
    """Whether a changed parameter that the stage reads may decide bytes of its units."""
    return not (_NO_UNIT.match(key) or (stage == "count" and _NO_COUNTS.match(key)))


Outputs: TypeAlias = dict[tuple[tuple[str, int], ...], str]


@dataclass
class UnitCauses:
    """Says why a unit is made again, one cause per unit. `inputs`: how the document files differ from those of the previous
    dataset. `outputs`: the previous dataset's `outputs_of`. `of_stages`: the causes of each stage."""

    root: Path
    inputs: InputChanges
    outputs: Outputs
    of_stages: dict[str, list[Cause]]

    def of(self, stage: str, unit: Unit) -> str:
        """The text of the cause for one unit."""
        above = ("encode",) if stage == "validate" else ()  # validate checks what the parameters of encode decide
        causes = [one for name in (stage, *above) for one in self.of_stages.get(name, [])]
        keys = [cause.key for cause in causes if cause.kind == "parameter"]
        if NEVER in causes:
            return NEVER.words
        if words := self.inputs.of_files(unit):
            return words
        if stage not in STAGES:
            return "its documents are not compared with source.drop yet"
        if not self.inputs.had(unit):
            cutting = next((key for key in keys if _CUTTING.match(key)), None)
            return _parameter(cutting).words if cutting else "the unit has other files now"
        for kind in _WHOLE_STAGE:
            for cause in causes:
                if cause.kind == kind and (kind != "parameter" or decides_units(stage, cause.key)):
                    return cause.words
        if stage == "validate" and DATASET in causes and self._is_made_anew(unit):
            return DATASET.words
        others = ", or another release of tokenizers or tiktoken" if stage == "validate" else ""
        return f"not in the unit store{others}"

    @cached_property
    def _outputs_now(self) -> Outputs:
        return outputs_of(last_manifest(self.root))

    def _is_made_anew(self, unit: Unit) -> bool:
        pieces = tuple(starts_of(unit))
        return self._outputs_now.get(pieces) != self.outputs.get(pieces)


def outputs_of(manifest: Manifest | None) -> Outputs:
    """The sha256 of each token file of a dataset, by the pieces of its unit; empty without a dataset."""
    return {} if manifest is None else {tuple(shard.pieces): shard.sha256 for shard in manifest.shards}
