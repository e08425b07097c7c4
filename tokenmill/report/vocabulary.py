"""The sections of report.html about the vocabulary, each as HTML with a sentence on what to look for."""

from collections.abc import Mapping
from typing import Any

from tokenmill.report import plots
from tokenmill.report.html import escaped, look, number, percent, table, token
from tokenmill.report.measures import RARE

Report = Mapping[str, Any]

_LONG_CHARACTERS_MAX = 24


def vocab_size(report: Report) -> str:
    """The section on compression by vocabulary size."""
    rows = report["by_vocab_size"]
    if not rows or len(rows) < 2:
        return ""
    words = look(
        "Each point is a tokenizer made of the first merges of this one, on the whole dataset without special tokens. Where the "
        "curve flattens, more vocabulary buys little; where it still rises at its end, a larger "
        "<code>train_vocab.vocab_size</code> would compress better."
    )
    last = rows[-1]
    halves = [min(rows, key=lambda row: abs(row["vocab_size"] - last["vocab_size"] / 2**i)) for i in range(6)]
    distinct = {row["vocab_size"]: row["bytes_per_token"] for row in halves}
    cells = [(number(n_tokens), number(bytes_per_token)) for n_tokens, bytes_per_token in distinct.items()]
    return (
        "<h2>Compression by vocabulary size</h2>"
        + words
        + plots.by_vocab_size(rows)
        + table(("vocabulary size", "bytes per token"), cells, left=0)
    )


def vocabulary(report: Report) -> str:
    """The section on token frequencies, with lists of odd tokens."""
    found, measures = report["vocabulary"], report["measures"]
    parts = ["<h2>Vocabulary</h2>"]
    if report["ranks"]:
        parts.append(
            look(
                "A straight fall is what language gives. A cliff at the right end is vocabulary that the dataset does not use; a "
                "plateau at the left is a token that repeats everywhere, such as boilerplate."
            )
        )
        parts.append(plots.ranks(report["ranks"]))
    lists = {
        "unused": (
            f"do not occur in the dataset ({percent(measures['unused_tokens_share'], 2)} of learned tokens)",
            found["unused"],
        ),
        "rare": (
            f"occur, but less than {RARE} times ({percent(measures['rare_tokens_share'], 2)}), so a model hardly learns them",
            found["rare"],
        ),
        "unreached": (
            "are reached by no text: their own text becomes other tokens, and they do not occur",
            found["unreached"],
        ),
        "parts": ("are parts of characters, not text of their own", found["parts_of_characters"]),
    }
    parts.append(
        f"<p>Of {number(found['learned_tokens'])} learned tokens (all but special tokens and the 256 bytes):</p>"
    )
    for words, one in lists.values():
        if one is None:
            continue
        chips = " ".join(token(each["token"]) for each in one["first"])
        summary = f"{number(one['n_tokens'])} {words}"
        more = " …" if one["n_tokens"] > len(one["first"]) else ""
        parts.append(
            f'<details><summary>{summary}</summary><p class="line">{chips}{more}</p></details>'
            if chips
            else f"<p>{summary}</p>"
        )
    chips = " ".join(_long(each) for each in found["longest"])
    parts.append("<h3>Longest tokens</h3>")
    parts.append(
        look(
            "Long tokens should be words. Runs of signs, markup or a sentence are a sign of repeated text in the corpus."
        )
    )
    parts.append(f'<p class="line">{chips}</p>' if chips else "<p>There are none.</p>")
    return "".join(parts)


def _long(one: Report) -> str:
    """Shows a long token by its beginning and its number of bytes."""
    if len(one["token"]) <= _LONG_CHARACTERS_MAX:
        return token(one["token"])
    return f'<span class="whole">{token(one["token"][:_LONG_CHARACTERS_MAX])}… {number(one["n_bytes"])} bytes</span> '


def panel(report: Report) -> str:
    """The section on how the tokenizer cuts the fixed texts."""
    labels = list(report["references"])
    rows = [
        (
            escaped(one["name"]),
            f'<span class="line">{"".join(token(each) for each in one["tokens"])}</span>',
            number(len(one["tokens"])),
            *(number(one["references"][label]) for label in labels),
        )
        for one in report["panel"]
    ]
    words = look(
        "The same texts for every tokenizer. Look whether numbers are cut in a regular way, whether runs of blanks are few tokens, "
        "and whether a script that matters to you falls apart into bytes (\\x and two digits)."
    )
    columns = ("", "tokens of this build (· is a space, ⏎ a line's end)", "tokens", *map(escaped, labels))
    return "<h2>Panel</h2>" + words + table(columns, rows, left=2)
