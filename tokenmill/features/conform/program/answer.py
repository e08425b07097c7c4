"""Compares one library, in a process of its own with a limit on its memory."""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from tokenmill.features.conform.program.consumer import WORDS, Cannot, Subject
from tokenmill.features.conform.program.consumers import CONSUMERS

ASK = "--ask"
"""The argument with which conform.py answers for one library."""
MEMORY_BYTES_MAX = 8_000_000_000
"""The limit on the memory of one library."""

_N_IDS_SHOWN = 5
_N_TRIED = 50  # texts, before a library that fails on each of them counts as one that cannot be compared


class Result(NamedTuple):
    """How a library compares. `verdict`: same, other, cannot or not installed. `compared`: numbers of equal ids by the names of
    `Encoders`. `why`: the first difference or the reason, in words. `difference`: the first one, with ids from `at` on."""

    consumer: str
    verdict: str
    version: str | None = None
    compared: dict[str, int] | None = None
    why: str | None = None
    difference: dict[str, Any] | None = None


def answer() -> None:
    """Answers the request on standard input. What a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    _limit_memory()
    name, subject = json.load(sys.stdin)
    with answers:
        json.dump(answer_of(name, Subject(*subject))._asdict(), answers)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MEMORY_BYTES_MAX if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answer_of(name: str, subject: Subject) -> Result:
    """Compares one library, in its process. Only its name, verdict, amounts and differences are set."""
    module, make, _, variable = CONSUMERS[name]
    compared = dict.fromkeys(WORDS, 0)
    if variable:
        sys.path.insert(0, os.environ[variable])
    try:
        encoders = make(importlib.import_module(module), subject)
    except BaseException as error:  # noqa: BLE001 — of foreign code; a panic of Rust is no Exception
        return Result(name, "cannot", why=str(error) if isinstance(error, Cannot) else _words(error))
    for mode, encode in encoders.items():
        for vector, given, expected in subject.vectors.get(mode, ()):
            try:
                ids = encode(given)
                if ids is None:
                    continue
                found: list[int] | str = [int(id) for id in ids]
            except BaseException as error:  # noqa: BLE001 — as above
                found = _words(error)
                if not any(compared.values()) and _fails_always(encode, subject.vectors[mode]):
                    return Result(name, "cannot", why=found)
            if found != expected:
                pairs = enumerate(zip_longest(found, expected))
                at = next(i for i, (one, other) in pairs if one != other) if isinstance(found, list) else 0
                end = at + _N_IDS_SHOWN
                shown = found[at:end] if isinstance(found, list) else found
                why = f"{vector}: {given!r:.60}: from token {at} on: found {shown}, expected {expected[at:end]}"
                difference = {"name": vector, "kind": mode, "given": given, "at": at}
                return Result(
                    name, "other", None, compared, why, {**difference, "found": shown, "expected": expected[at:end]}
                )
            compared[mode] += 1
    if not any(compared.values()):
        return Result(name, "cannot", why="there is nothing that it can encode")
    return Result(name, "same", None, compared)


def _fails_always(encode: Callable[[Any], Iterable[int] | None], vectors: Sequence[tuple[str, Any, list[int]]]) -> bool:
    for _, given, _ in vectors[:_N_TRIED]:
        try:
            encode(given)
        except BaseException:  # noqa: BLE001 — as above
            continue
        return False
    return True


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
