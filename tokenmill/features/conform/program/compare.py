"""Compares the ids that libraries give for a tokenizer's files with those that it was made with.

    python conform.py [--with NAME ...] [--json]

conform.py lies beside a tokenizer. It needs Python 3.9 and no package but those that it compares. It reads texts and their ids from
golden.json, and asks every library that is installed here, each in a process of its own. Exit code 0: all ids are the same, 1: a
library gives other ids, 2: one that --with names is not installed or cannot be compared, or there is none.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import machinery, metadata, util
from pathlib import Path
from typing import Any

from tokenmill.features.conform.program.answer import ASK, Result, answer
from tokenmill.features.conform.program.consumer import WORDS, Subject
from tokenmill.features.conform.program.consumers import CONSUMERS
from tokenmill_reader.shown import as_shown

SECONDS_MAX = 600
"""The time limit for one library."""

_ANSWER_BYTES_MAX = 1 << 20
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TIKTOKEN_CACHE_DIR": "",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONSAFEPATH": "1",
}


def subject_of(folder: Path) -> Subject:
    """The tokenizer in a folder, with the texts and conversations of its golden.json, and each special token alone. Raises OSError,
    ValueError."""
    golden = json.loads((folder / "golden.json").read_bytes())
    card: Mapping[str, Any] = json.loads((folder / "card.json").read_bytes())
    special = card["special_tokens"]
    texts = [(one["name"], one["text"], one["ids"]) for one in golden["vectors"]]
    plain = [one for one in texts if not any(token in one[1] for token in special)]
    tokens = [(f"special/{id}", token, [id]) for token, id in special.items()]
    chats = [(one["name"], one["messages"], one["ids"]) for one in golden.get("conversations", [])]
    vectors = {"text": texts, "special": [*plain, *tokens], "token": tokens, "chat": chats}
    return Subject(str(folder.resolve()), card["pattern"], special, vectors)


def note(line: str) -> None:
    """Prints a line to standard error at once."""
    print(as_shown(line), file=sys.stderr, flush=True)


def compare(subject: Subject, names: Sequence[str], program: Path, say: Callable[[str], None] = note) -> list[Result]:
    """Asks these libraries, one after another. `program`: conform.py, which runs in the process of each. `say`: prints that a
    library is asked, which may take minutes."""
    return [_compared(name, subject, program, say) for name in names]


def exit_code(results: Sequence[Result], are_named: bool) -> int:
    """0: all ids are the same. 1: a library gives other ids. 2: no library was compared, or, if `are_named`, not each of them."""
    verdicts = {one.verdict for one in results}
    if "other" in verdicts:
        return 1
    return 0 if "same" in verdicts and not (are_named and verdicts != {"same"}) else 2


def lines_of(results: Sequence[Result]) -> list[str]:
    """The table for people."""
    rows = [("library", "version", "ids", "")]
    for one in results:
        amount = ", ".join(f"{n:,} {WORDS[mode]}" for mode, n in (one.compared or {}).items() if n)
        rows.append((one.consumer, one.version or "", one.verdict, one.why or amount))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(f"{row[i]:<{width}}" for i, width in enumerate(widths)), row[3]]).rstrip() for row in rows]


def _compared(name: str, subject: Subject, program: Path, say: Callable[[str], None]) -> Result:
    module, _, package, variable = CONSUMERS[name]
    folder = os.environ.get(variable) if variable else None
    if variable and not folder:
        return Result(name, "not installed", why=f"{variable} does not name its folder")
    if (machinery.PathFinder.find_spec(module, [folder]) if folder else util.find_spec(module)) is None:
        hint = f"{variable} is {folder}, where it is not" if folder else package and f"its package is {package}"
        return Result(name, "not installed", why=hint)
    version = _version(package or module, folder)
    say(f"conform: {name} {version}: started")
    vectors = {mode: some for mode, some in subject.vectors.items() if some}
    request = json.dumps([name, subject._replace(vectors=vectors)])
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answered, tempfile.TemporaryFile() as said:
        asked.write(request.encode())
        asked.seek(0)
        process = subprocess.Popen(
            [sys.executable, str(program), ASK],
            stdin=asked,
            stdout=answered,
            stderr=said,
            start_new_session=True,
            env={**os.environ, **_ENVIRONMENT},
        )
        try:
            code = process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return Result(name, "cannot", version, why=f"it took more than {SECONDS_MAX} s")
        finally:
            with suppress(ProcessLookupError):  # else the library, or what it started, still runs
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answered.seek(0)
        try:
            found = json.loads(answered.read(_ANSWER_BYTES_MAX))
            return Result(name, found["verdict"], version, found["compared"], found["why"], found["difference"])
        except (ValueError, KeyError, TypeError):
            pass
        said.seek(max(0, said.seek(0, os.SEEK_END) - _ANSWER_BYTES_MAX))
        *_, last = ["", *said.read().decode(errors="replace").strip().splitlines()]
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Result(name, "cannot", version, why=f"its process ended with {how}{last and ': '}{last:.200}")


def _version(package: str, folder: str | None) -> str:
    found = metadata.distributions(name=package, path=[folder] if folder else sys.path)
    return next((one.version for one in found), "unknown")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares the libraries for the tokenizer in this file's folder."""
    parser = argparse.ArgumentParser(
        prog="conform.py", description="Compares the ids of this tokenizer in the libraries that are installed."
    )
    parser.add_argument("--with", dest="names", nargs="+", choices=CONSUMERS, metavar="NAME", help="these libraries")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args(arguments)
    try:
        subject = subject_of(Path(__file__).parent)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        parser.error(as_shown(f"golden.json and card.json are needed beside this file: {error}"))
    results = compare(subject, asked.names or list(CONSUMERS), Path(__file__))
    if asked.json:
        print(json.dumps([one._asdict() for one in results], indent=1))
    else:
        print(as_shown(lines_of(results)))
    return exit_code(results, bool(asked.names))


if __name__ == "__main__":
    if sys.argv[1:] == [ASK]:
        answer()
    else:
        sys.exit(main())
