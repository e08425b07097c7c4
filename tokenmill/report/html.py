"""The building blocks of report.html: style, tables, numbers and tokens."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

from tokenmill.report.plots import SERIES

_LIGHT = ("#2563a8", "#c2571a", "#2e7d4f", "#8e44ad", "#a67c00", "#b3365b")
_DARK = ("#6ea8e8", "#f0935a", "#6cc08b", "#c38be0", "#d9b545", "#ec7c9f")
assert len(_LIGHT) == len(_DARK) == SERIES


def _colours(ink: str, muted: str, grid: str, back: str, chip: tuple[str, str], bad: str, series: Sequence[str]) -> str:
    named = {"ink": ink, "muted": muted, "grid": grid, "back": back, "chip": chip[0], "chip-other": chip[1], "bad": bad}
    named |= {f"series-{i}": colour for i, colour in enumerate(series, 1)}
    return "".join(f"--{name}:{colour};" for name, colour in named.items())


_IN_LIGHT = _colours("#1c1e21", "#5b6167", "#dfe2e5", "#ffffff", ("#dbe8f6", "#f6e6d6"), "#b3261e", _LIGHT)
_IN_DARK = _colours("#e4e6e8", "#9aa1a8", "#3a3f45", "#16181b", ("#26405c", "#54391f"), "#ff8a80", _DARK)

STYLE = (
    f":root{{color-scheme:light;{_IN_LIGHT}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{_IN_DARK}}}}}"
    """
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .25rem}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--grid)}
h3{font-size:1rem;margin:1.5rem 0 .25rem}p{margin:.25rem 0 .75rem;max-width:46rem}.look{color:var(--muted)}
table{border-collapse:collapse;font-size:.9rem;margin:.5rem 0 1rem}
th{text-align:left;font-weight:600;color:var(--muted);vertical-align:bottom}
td,th{padding:.2rem .9rem .2rem 0;border-bottom:1px solid var(--grid)}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}svg{max-width:100%;height:auto;display:block;margin:.5rem 0;overflow:visible}
.figures{display:flex;flex-wrap:wrap;gap:.5rem 2.5rem;margin:1.25rem 0}.figures b{display:block;font-size:1.4rem;font-weight:600}
.figures span{color:var(--muted);font-size:.85rem}
code,.t{font-family:ui-monospace,monospace;font-size:.85rem}code{overflow-wrap:anywhere}
.t{background:var(--chip);border-radius:3px;padding:.05rem .1rem;white-space:pre-wrap;overflow-wrap:anywhere;
-webkit-box-decoration-break:clone;box-decoration-break:clone}.t:nth-of-type(even){background:var(--chip-other)}
.line{line-height:1.9}.whole,.whole .t{white-space:pre}td:first-child{min-width:9rem}
.t i{color:var(--muted);font-style:normal}.no{color:var(--bad);font-weight:600}
.say{white-space:pre-wrap;overflow-wrap:anywhere}.on{background:var(--chip);box-shadow:inset 0 -.12em var(--series-1)}
.chat{max-width:none;border-left:3px solid var(--grid);padding-left:.75rem;font-size:.9rem}
details{margin:.25rem 0 .75rem}summary{cursor:pointer}
@media print{body{margin:0;max-width:none;font-size:12px}svg,tr,.figures{break-inside:avoid}h2,h3{break-after:avoid}
.on,.t,.t:nth-of-type(even){-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
)

PAGE = (
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{mark}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>"""
    + STYLE.replace("{", "{{").replace("}", "}}")
    + """</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
)
"""The template of the page, which runs no scripts, and whose policy forbids loading anything."""

_SHOWN = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\xa0": "⍽"}


def escaped(text: object) -> str:
    """The text for HTML, with control characters as their codes."""
    shown = "".join(one if one.isprintable() or one in "\n\t" else f"\\u{ord(one):04x}" for one in str(text))
    return html.escape(shown)


def number(value: float | int | None, digits: int = 3) -> str:
    """The number with commas; – for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """The share in percent; – for None."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """A table. The first `left` columns are texts, the others numbers; cells are HTML."""
    kinds = ["" if i < left else ' class="n"' for i in range(len(columns))]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def look(sentence: str) -> str:
    """A paragraph that says what to look for."""
    return f'<p class="look">{sentence}</p>'


def token(text: str) -> str:
    """A token as a chip, with blanks made visible."""
    cells = []
    for one in text:
        if one in _SHOWN:
            cells.append(f"<i>{_SHOWN[one]}</i>")
        else:
            cells.append(escaped(one))
    return f'<bdi class="t">{"".join(cells)}</bdi>'
