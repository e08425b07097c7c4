"""The tables of exit codes and of error codes, from tokenmill.errors."""

from collections.abc import Mapping
from typing import Any

from docs.generated.tables import table
from tokenmill import errors

_EXIT_CODES = {
    0: "Done, or nothing to do.",
    1: "The answer is no: `doctor` found something wrong, or `diff` found other ids.",
    2: "An error that you can mend. One message says what is wrong, where, and what to do. `status` ends with 2 when a build "
    "would do something.",
    errors.EXIT_INTERRUPTED: "Interrupted by Ctrl-C.",
    errors.EXIT_UNREAD: "Nobody reads what is printed, as when `head` has seen enough.",
    errors.EXIT_TERMINATED: "Ended by a termination signal, by the end of its terminal (not under nohup), or by a cancellation "
    "in Prefect.",
}


def exit_codes() -> str:
    """The table of exit codes."""
    known: Mapping[int, str] = getattr(errors, "EXIT_CODES", _EXIT_CODES)
    return table(["exit code", "meaning"], ([f"{number}", _sentence(words)] for number, words in known.items()))


def codes(known: Mapping[str, Any] | None = None) -> str:
    """A section for each error code: what it means, and what to do."""
    if known is None:
        known = getattr(errors, "CODES", {})
    if not known:
        return ""
    parts = [
        "## Error codes\n",
        table(["code", "title"], ([f"[{one}](#{one.lower()})", _title(known[one])] for one in known)),
    ]
    for name, found in known.items():
        parts.append(f"### {name}: {_title(found)} {{ #{name.lower()} }}\n")
        parts += [f"{text}\n" for text in (_part(found, "meaning"), _advice(found)) if text]
    return "\n".join(parts)


def _title(found: Any) -> str:
    return _part(found, "title") or str(found)


def _advice(found: Any) -> str:
    words = _part(found, "advice")
    return f"**What to do.** {words}" if words else ""


def _part(found: Any, name: str) -> str:
    return str((found.get(name) if isinstance(found, Mapping) else getattr(found, name, "")) or "")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
