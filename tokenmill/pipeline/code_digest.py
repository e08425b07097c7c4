"""The digest of the code that makes a stage's outputs, so that outputs of other code are never reused.

A stage depends on whole rooms, the folders of tokenmill/ that decide bytes, on its own modules in tokenmill/stages/, whose names
begin with the stage's, on a module of config/ that decides bytes, and on what it shares with the reader of datasets. The stages
that read documents depend on the features that filter them, too. The rest decides how a build runs but not what it makes, so a
change there makes no output stale. Nor does a mended comment, docstring or test, because the digest is over the code alone, nor a
module that moves to another folder of these rooms.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from tokenmill import _core
from tokenmill.features import folders
from tokenmill.layout import DOCUMENT_STAGES
from tokenmill.pipeline.normal_form import content_digests

_LIBRARIES = ("pyarrow", "jinja2", "msgspec")
"""The libraries whose version decides bytes: it is written into output files, or decides how chat templates render and how
canonical JSON is written."""

_PACKAGE = Path(__file__).parent.parent
_SUFFIXES = (".py", ".jinja", ".json")
_DOCUMENTS = ("corpus", "pretokenizers", "counts")
_DATASETS = (*_DOCUMENTS, "tokenizer", "artifacts", "chat", "formats", "dataset", "file_sets")

_FILTERS = ("filters.py", *folders("lists", "filters"))

ROOMS = {
    "count": (*_DOCUMENTS, *_FILTERS),
    "train-vocab": (*_DOCUMENTS, "tokenizer", "training", "artifacts"),
    "encode": (*_DATASETS, *_FILTERS),
    "validate": (*_DATASETS, "checks", *_FILTERS),
}
"""The rooms that decide the bytes of each stage's outputs, beside the stage's own module. dvc.yaml names the same rooms."""

MODULES = (
    "config/conversation_template.py",
)  # it says what a template makes of columns; config/ may not import corpus/ for it
"""The modules of other rooms that decide bytes of every stage."""

_PARQUET_PAGES = ("parquet_pages.py", "thrift.py")
_ORDER = ("order.py",)
READER = {
    "count": _PARQUET_PAGES,
    "train-vocab": _PARQUET_PAGES,
    "encode": ("formats", *_ORDER, *_PARQUET_PAGES),
    "validate": ("formats", *_ORDER, *_PARQUET_PAGES),
}
"""The rooms and modules of tokenmill_reader, the package beside tokenmill, that decide the bytes of each stage's outputs."""

AFTER_UNITS = {
    "count": ("tokenizer",),
    "train-vocab": ("chat", *folders("beside", "elsewhere")),
    "validate": ("report",),
}
"""Rooms that write outputs of a stage after its units are done: the stage runs again if they change, its units do not. Of count, it
is the room by which texts are prepared for the tokenizer to extend or to trim: the keys of such units have its digest. Of
train-vocab, features write files beside the tokenizer, and sentences into its card."""


@functools.cache
def code_digest(stage: str, package: Path = _PACKAGE) -> str:
    """The sha256, in hex, over the code of the stage's units: its rooms and modules, the core's code, and the versions of
    libraries that decide bytes. `stage`: the name in dvc.yaml.

    Other packages are assumed to have the versions of requirements.lock.
    """
    return _digest(stage, ROOMS[stage], package)


@functools.cache
def output_digest(stage: str, package: Path = _PACKAGE) -> str:
    """The sha256, in hex, over all code that makes the stage's outputs, including the rooms that run after the units."""
    return _digest(stage, (*ROOMS[stage], *AFTER_UNITS.get(stage, ())), package)


def libraries() -> dict[str, str]:
    """The versions of the libraries that decide bytes, by name."""
    return {name: version(name) for name in _LIBRARIES}


def output_digest_with(stage: str, versions: Mapping[str, str]) -> str:
    """What `output_digest` would give with these versions of the libraries that decide bytes. Further ones are of the packages that
    filter documents, for the stages that read them."""
    return _digest(stage, (*ROOMS[stage], *AFTER_UNITS.get(stage, ())), _PACKAGE, versions)


def units_digest() -> str:
    """The digest of the code of all units, by which a worker of a cluster knows whether it has the same tokenmill as the build."""
    return "-".join(code_digest(stage)[:16] for stage in DOCUMENT_STAGES)


def unit_modules(stage: str, package: Path = _PACKAGE) -> list[Path]:
    """The files whose code `code_digest` is over. `stage`: the name in dvc.yaml."""
    return _modules(stage, ROOMS[stage], package)


def _digest(stage: str, rooms: Sequence[str], package: Path, versions: Mapping[str, str] | None = None) -> str:
    found = libraries() if versions is None else versions
    others = sorted(found.keys() - set(_LIBRARIES)) if stage in DOCUMENT_STAGES else []
    of_libraries = [*(found.get(name, "") for name in _LIBRARIES), *(f"{name} {found[name]}" for name in others)]
    digest = hashlib.sha256(" ".join([_core.CODE_HASH, *of_libraries]).encode())
    contents = content_digests(_modules(stage, rooms, package), package)
    for name, content in sorted((path.name, content) for path, content in contents.items()):
        digest.update(name.encode() + b"\0" + content.encode())
    return digest.hexdigest()


def _modules(stage: str, rooms: Sequence[str], package: Path) -> list[Path]:
    modules = [package / name for name in MODULES]
    modules += list((package / "stages").glob(f"{stage.replace('-', '_')}*.py"))
    for place in [
        *(package / room for room in rooms),
        *(package.parent / "tokenmill_reader" / name for name in READER[stage]),
    ]:
        modules += [place] if place.suffix else [path for suffix in _SUFFIXES for path in place.rglob(f"*{suffix}")]
    return sorted(modules)
