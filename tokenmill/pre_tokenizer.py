"""The pre_tokenizer of a tokenizer.json: into steps of regexes and back."""

import re
from collections.abc import Sequence
from typing import Any

from tokenmill import _core
from tokenmill.errors import PatternError
from tokenmill.patterns import first_difference

_META = re.compile(r"[\\.+*?()|\[\]{}^$]")


class BeyondCore(Exception):
    """The core cannot run this exactly; the message names field and value."""


def steps_from(found: Any) -> tuple[str, ...]:
    """The steps that a pre_tokenizer stands for. Raises BeyondCore."""
    sequence = isinstance(found, dict) and found.get("type") == "Sequence"
    parts = found.get("pretokenizers") if sequence else [found]
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise BeyondCore(f"pre_tokenizer is {'null' if found is None else repr(found)[:60]}")
    steps = [_step_of(part) for part in parts[:-1]]
    last = parts[-1]
    if last.get("type") != "ByteLevel":
        raise BeyondCore(f"pre_tokenizer ends with {last.get('type')!r:.40}, not ByteLevel")
    if last.get("add_prefix_space") is not False:
        raise BeyondCore(f"pre_tokenizer.add_prefix_space is {last.get('add_prefix_space')!r:.40}")
    if last.get("use_regex", True) not in (True, False):
        raise BeyondCore(f"pre_tokenizer.use_regex is {last['use_regex']!r:.40}")
    if last.get("use_regex", True):
        steps.append(_gpt2())
    if different := first_difference(steps):
        raise BeyondCore(f"pre_tokenizer: the core may read {different!r:.60} of the regex otherwise than Oniguruma")
    try:
        _core.split(steps, "")
    except (PatternError, UnicodeEncodeError) as error:
        raise BeyondCore(f"pre_tokenizer: {error}") from None
    return tuple(steps)


def pre_tokenizer_of(steps: Sequence[str]) -> dict[str, Any]:
    """The pre_tokenizer that `steps_from` reads back as these steps.

    Raises PatternError for a regex that the tokenizers library would read otherwise.
    """
    if different := first_difference(steps):
        raise PatternError(
            f"pattern: {different!r:.60} does not mean the same in the tokenizers library, which reads tokenizer.json. "
            r"Use what means the same in both: for example \z for $, \A for ^, and no + after {1,3}."
        )
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": list(steps) == [_gpt2()],
    }
    if byte_level["use_regex"] or not steps:
        return byte_level
    splits = [{"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated", "invert": False} for step in steps]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level]}


def _step_of(part: dict[str, Any]) -> str:
    if part.get("type") == "Digits" and isinstance(part.get("individual_digits"), bool):
        return r"\p{N}" if part["individual_digits"] else r"\p{N}+"
    if part.get("type") != "Split":
        raise BeyondCore(f"pre_tokenizer has {part.get('type')!r:.40}")
    if part.get("behavior") != "Isolated" or part.get("invert") is not False:
        raise BeyondCore(
            f"pre_tokenizer has Split with {part.get('behavior')!r:.40}, invert {part.get('invert')!r:.40}"
        )
    match part.get("pattern"):
        case {"Regex": str(regex)} if regex:
            return regex
        case {"String": str(text)} if text:
            return _META.sub(r"\\\g<0>", text)
        case other:
            raise BeyondCore(f"pre_tokenizer has Split with pattern {other!r:.60}")


def _gpt2() -> str:
    return _core.patterns()["gpt2"][0]
