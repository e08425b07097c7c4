"""What Python code does, without its comments, docstrings and annotations, and a digest of it for each module of a package."""

import ast
import contextlib
import functools
import hashlib
from collections.abc import Iterable
from importlib.util import cache_from_source
from pathlib import Path

from tokenmill.storage.atomic import partial_path

_WITHOUT_EFFECT: dict[type[ast.AST], tuple[str, ...]] = {
    ast.arg: ("annotation",),
    ast.FunctionDef: ("returns",),
    ast.AsyncFunctionDef: ("returns",),
    ast.Constant: ("kind",),
}
"""The fields of the syntax tree that do not change what code does."""
_OURS = ("tokenmill", "tokenmill_reader")


def content_digests(paths: Iterable[Path], package: Path) -> dict[Path, str]:
    """The sha256, in hex, over the content of each file of a package: of Python code in its normal form, of others as they are.

    Parsing the code takes most of a second, so the digests are kept beside the bytecode, in the package's `__pycache__`, each with
    the sha256 of its source. If that folder cannot be written, they are computed each time.
    """
    file = Path(cache_from_source(str(package / "normal_forms.py"))).with_suffix(".txt")
    kept = _read(file)
    before = dict(kept)
    digests = {}
    for path in paths:
        content = path.read_bytes()
        digests[path] = hashlib.sha256(content).hexdigest()
        if path.suffix == ".py":
            name, source = path.relative_to(package.parent).as_posix(), f"{_maker()}{digests[path]}"
            if name not in kept or kept[name][0] != source:
                kept[name] = (source, hashlib.sha256(normal_form(content.decode()).encode()).hexdigest())
            digests[path] = kept[name][1]
    if kept != before:
        lines = (f"{name} {source} {digest}\n" for name, (source, digest) in kept.items())
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = partial_path(file)
            partial.write_text("".join(lines), encoding="utf-8")
            partial.replace(file)  # never read half-written
    return digests


def _read(file: Path) -> dict[str, tuple[str, str]]:
    """The kept digests: of each file, by its name, the source that they are of, and of its normal form. Others are left out."""
    try:
        lines = [line.split(" ") for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return {}
    return {line[0]: (line[1], line[2]) for line in lines if len(line) == 3 and len(line[2]) == 64}


@functools.cache
def _maker() -> str:
    """The digest of this module, which decides the normal form."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def normal_form(source: str) -> str:
    """Python source text as its syntax tree, without comments, docstrings, the annotations of functions, and the folders of
    modules of ours that are imported, which change nothing of what they do.

    Annotations of classes stay, because they declare the fields of records. Every Python from 3.11 on gives the same form: fields
    of the tree that are empty are left out, since a later Python adds some.
    """
    words: list[str] = []
    _write(ast.parse(source), words)
    return " ".join(words)


def _is_of_ours(value: object) -> bool:
    return isinstance(value, ast.ImportFrom) and (value.module or "").split(".")[0] in _OURS


def _imported(value: object) -> list[str]:
    """What a statement imports from a module of ours: the module's name without its folder, each name in it, and its name here."""
    if not isinstance(value, ast.ImportFrom) or not _is_of_ours(value):
        return []
    module = (value.module or "").rpartition(".")[2]
    return [f"{module}:{alias.name}:{alias.asname or alias.name}" for alias in value.names]


def _write(value: object, words: list[str]) -> None:
    if isinstance(value, ast.AST):
        words += [type(value).__name__, "("]
        for name, field in ast.iter_fields(value):
            if field not in (None, []) and name not in _WITHOUT_EFFECT.get(type(value), ()):
                words.append(f"{name}=")
                _write(field, words)
        words.append(")")
    elif isinstance(value, list):
        words.append("[")
        words += sorted(name for element in value for name in _imported(element))
        for element in value:
            if _is_of_ours(element):
                continue
            if not (
                isinstance(element, ast.Expr)
                and isinstance(element.value, ast.Constant)
                and isinstance(element.value.value, str)
            ):
                _write(element, words)
        words.append("]")
    else:
        words.append(repr(value))
