"""Limits on what a tokenizer.json asks of the `tokenizers` library, which nothing interrupts, and which aborts without memory."""

import base64
import math
from contextlib import suppress
from typing import Any

from tokenmill import _core
from tokenmill.errors import TokenizerError, shown
from tokenmill.pretokenizers.json_steps import parts_of
from tokenmill.pretokenizers.patterns import first_difference

WORD_CHARS_MAX = 1_000
"""WordPiece takes cubic time: 0.05 s for a word of 1,000 characters, 2.3 s for 4,000. BERT's limit is 100."""
TOKEN_CHARS_MAX = 256
"""Unigram compares all shorter tokens at every place of a text: 10,000 characters took 21 s with tokens of 4,000."""
GROWTH_MAX = 1_000
"""How many times as long the parts of a section may make a text."""
SECTIONS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
"""The name of a Sequence's list of parts, by section."""


def check_limits(document: dict[str, Any], place: str) -> None:
    """Raises TokenizerError, which names the part, if a well-formed document may take time or memory without a bound."""
    model = document["model"]
    n = model.get("max_input_chars_per_word")
    if model["type"] == "WordPiece" and isinstance(n, int) and n > WORD_CHARS_MAX:
        raise TokenizerError(
            f"{place}: model.max_input_chars_per_word",
            f"expected {WORD_CHARS_MAX:,} at most, since the time for a word grows with the cube of its length; found {shown(n)}.",
            "Lower it: longer words become the unknown token.",
        )
    long = max((text for text, _ in model["vocab"]), key=len, default="") if model["type"] == "Unigram" else ""
    if len(long) > TOKEN_CHARS_MAX:
        raise TokenizerError(
            f"{place}: model.vocab",
            f"the token {long!r:.60} has {len(long):,} characters; expected {TOKEN_CHARS_MAX} at most, because every "
            "place of a text may be compared with all shorter tokens.",
            "Remove it.",
        )
    for section, inner in SECTIONS.items():
        total = 1.0
        for i, part in enumerate(parts_of(document.get(section), inner), 1):
            if (total := total * _growth_of(part)) > GROWTH_MAX:
                raise TokenizerError(
                    f"{place}: {section}",
                    f"with part {i}, {part['type']!r:.40}, it may make a text {total:,.0f} times as long; expected "
                    f"{GROWTH_MAX:,} times at most.",
                    "Remove that part.",
                )


def growth(document: dict[str, Any]) -> float:
    """The largest factor by which a text may grow, in bytes, on its way to the model."""
    found = (parts_of(document.get(name), SECTIONS[name]) for name in ("normalizer", "pre_tokenizer"))
    return math.prod(_growth_of(part) for parts in found for part in parts)


def _growth_of(part: dict[str, Any]) -> float:
    """The largest factor by which one part may lengthen a text. Unicode normal forms count as 1, because no file configures
    them."""
    match part["type"]:
        case "Replace":
            return _replacing(part.get("pattern"), part.get("content"))
        case "BPEDecoder" | "CTC":
            return _replacing({"String": part.get("suffix", part.get("word_delimiter_token"))}, " ")
        case "Prepend" | "Metaspace":
            return 1 + _n_bytes(part.get("prepend", part.get("replacement")))
        case "ByteLevel" | "WordPiece":
            return 3  # two bytes for one, and a space in front
        case "TemplateProcessing":
            single = part["single"]
            return max(1, single.count("$") if isinstance(single, str) else sum("Sequence" in one for one in single))
        case "Precompiled" if isinstance(charsmap := part.get("precompiled_charsmap"), str):
            with suppress(ValueError):  # the length of an index, the index, and texts that end with NUL
                texts = base64.b64decode(charsmap + "==")
                return max(1, *map(len, texts[4 + int.from_bytes(texts[:4], "little") :].split(b"\0")))
    return 1


def _replacing(pattern: Any, content: Any) -> float:
    fields, n_content = pattern if isinstance(pattern, dict) else {}, _n_bytes(content)
    regex = fields.get("Regex")
    if isinstance(regex, str):
        n_found = 0 if first_difference([regex]) else _core.match_bytes_min(regex)
    else:
        n_found = _n_bytes(fields.get("String"))
    return (
        max(1, n_content / n_found) if n_found else 1 + 2 * n_content
    )  # an empty match is on both sides of a character


def _n_bytes(text: Any) -> int:
    return len(text.encode(errors="surrogatepass")) if isinstance(text, str) else 0
