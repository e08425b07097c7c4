"""Finds the writing systems of texts by counting their characters."""

import pyarrow as pa
import pyarrow.compute as pc

# fmt: off
SCRIPTS = (
    "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati",
    "Gurmukhi", "Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao", "Latin", "Malayalam",
    "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan",
)
# fmt: on
OTHER = "other"

_BEGINNING_CHARACTERS = 2000

# Matched by RE2, Arrow's regex engine. Digits, blanks and marks that all scripts share belong to no script.
_CHARACTERS = {script: rf"\p{{{script}}}" for script in SCRIPTS}
_OTHER_LETTERS = rf"[^\P{{L}}\p{{Lm}}{''.join(_CHARACTERS.values())}]"


def characters_by_script(texts: pa.Array, counts: pa.Array | None = None) -> dict[str, int]:
    """The number of characters of each script in the texts. Each text counts as often as `counts` (uint64) says.

    "other" stands for the letters of all scripts without a name here. Scripts without a character are left out.
    >>> characters_by_script(pa.array(["the cat", "кот 12", "ᎣᏏ"]))
    {'Cyrillic': 3, 'Latin': 6, 'other': 2}
    """
    is_ascii = pc.string_is_ascii(texts)
    ascii_counts = None if counts is None else counts.filter(is_ascii)
    n_characters_of = {"Latin": _total(texts.filter(is_ascii), "[A-Za-z]", ascii_counts)}
    others = pc.invert(is_ascii)
    texts, counts = texts.filter(others), None if counts is None else counts.filter(others)
    for script, pattern in {**_CHARACTERS, OTHER: _OTHER_LETTERS}.items():
        n_characters_of[script] = n_characters_of.get(script, 0) + _total(texts, pattern, counts)
    return {script: n_characters for script, n_characters in sorted(n_characters_of.items()) if n_characters}


def main_scripts(texts: pa.Array) -> list[str]:
    """For each text, the script with the most characters in its beginning; "none" for a text without letters.

    >>> main_scripts(pa.array(["Москва is a city, Россия", "12"]))
    ['Cyrillic', 'none']
    """
    beginnings = pc.utf8_slice_codeunits(texts, 0, _BEGINNING_CHARACTERS)
    if pc.all(pc.string_is_ascii(beginnings)).as_py() is not False:
        return ["Latin" if one else "none" for one in pc.match_substring_regex(beginnings, "[A-Za-z]").to_pylist()]
    names = [*_CHARACTERS, OTHER]
    columns = [
        pc.count_substring_regex(beginnings, pattern).to_pylist() for pattern in (*_CHARACTERS.values(), _OTHER_LETTERS)
    ]
    return [names[found.index(max(found))] if any(found) else "none" for found in zip(*columns, strict=True)]


def _total(texts: pa.Array, pattern: str, counts: pa.Array | None) -> int:
    found = pc.count_substring_regex(texts, pattern).cast(pa.uint64())
    total: int | None = pc.sum(found if counts is None else pc.multiply_checked(found, counts)).as_py()
    return total or 0
