"""Converts the pre_tokenizer of a tokenizer.json to regex steps and back."""

import re
from collections.abc import Sequence
from typing import Any

from tokenmill import _core
from tokenmill.errors import PatternError
from tokenmill.pretokenizers.patterns import first_difference, hard_text, name_of

_META = re.compile(r"[\\.+*?()|\[\]{}^$]")


class BeyondCore(Exception):
    """Raised for what the core cannot run exactly. The message names the field and its value."""


def parts_of(section: Any, inner: str) -> list[dict[str, Any]]:
    """The members of a normalizer, pre_tokenizer or post_processor in order, with nested sequences flattened; [] for null."""
    if section is None:
        return []
    if section["type"] != "Sequence":
        return [section]
    return [part for one in section[inner] for part in parts_of(one, inner)]


def steps_from(found: Any) -> tuple[tuple[str, ...], bool]:
    """The steps that a pre_tokenizer stands for, and whether text gets a space in front. Raises BeyondCore."""
    parts = parts_of(found, "pretokenizers")
    if not parts:
        raise BeyondCore("pre_tokenizer is null")
    steps = [_step_of(part) for part in parts[:-1]]
    last = parts[-1]
    if last["type"] != "ByteLevel":
        raise BeyondCore(f"pre_tokenizer ends with {last['type']!r:.40}, not ByteLevel")
    add_prefix_space = last.get("add_prefix_space", True)
    if add_prefix_space and steps:
        raise BeyondCore("pre_tokenizer.add_prefix_space is true after a split, for every piece of it")
    if last.get("use_regex", True):
        steps.append(_gpt2())
    if different := first_difference(steps):
        raise BeyondCore(f"pre_tokenizer: the core may read {different!r:.60} of the regex differently from Oniguruma")
    try:
        _core.split(steps, "" if name_of(steps) else hard_text(steps))
    except (PatternError, UnicodeEncodeError) as error:
        raise BeyondCore(f"pre_tokenizer: {error}") from None
    return tuple(steps), add_prefix_space


def pre_tokenizer_of(steps: Sequence[str], add_prefix_space: bool = False) -> dict[str, Any]:
    """The pre_tokenizer from which `steps_from` reads these steps.

    Raises PatternError for a regex that the tokenizers library would read differently.
    """
    if different := first_difference(steps):
        raise PatternError(
            "pattern",
            f"{different:.60} does not mean the same in the tokenizers library, which reads tokenizer.json.",
            "Use what means the same in both: for example [\\p{L}\\p{N}_] for \\w, \\z for $, \\A for ^, and no \\b, "
            "no [[:alpha:]], and no + after {1,3}.",
        )
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": list(steps) == [_gpt2()],
    }
    if byte_level["use_regex"] or not steps:
        return byte_level
    splits = [{"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated", "invert": False} for step in steps]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level]}


def _step_of(part: dict[str, Any]) -> str:
    if part["type"] == "Digits":
        return r"\p{N}" if part.get("individual_digits", False) else r"\p{N}+"
    if part["type"] != "Split":
        raise BeyondCore(f"pre_tokenizer has {part['type']!r:.40}")
    # Isolated keeps matches and gaps alike, so inverting it changes nothing. Removed with invert keeps only the matches; that
    # loses nothing if the pattern matches every character of every text.
    regex = _regex_of(part["pattern"])
    if part["behavior"] == "Isolated" or (part["behavior"] == "Removed" and part["invert"] and regex in _total()):
        return regex
    raise BeyondCore(f"pre_tokenizer has Split with {part['behavior']!r}, invert {part['invert']!r}")


def _regex_of(pattern: dict[str, str]) -> str:
    match pattern:
        case {"Regex": str(regex)} if regex:
            return regex
        case {"String": str(text)} if text:
            return _META.sub(r"\\\g<0>", text)
        case other:
            raise BeyondCore(f"pre_tokenizer has Split with pattern {other!r:.60}")


def _total() -> set[str]:
    """The named patterns of one step. Together, their alternatives match every character, so they leave no gaps."""
    return {steps[0] for steps in _core.patterns().values() if len(steps) == 1}


def _gpt2() -> str:
    return _core.patterns()["gpt2"][0]
