"""The speed figure of the README: `python -m benchmarks.figure` draws the newest record into docs/assets/speed-*.svg.

One row a tool: how fast it encodes English text with the gpt2 tokenizer on one core, in MB a second of processor time. The upper
bar is text that the tokenizer has met before (the median of all later passes), the lower one fresh text (the median of first
passes). A tool that was measured in one pass has the lower bar alone. A thin line goes from the lowest run to the highest. Only
tools that gave the ids of the tokenizers library are drawn.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks import record

ASSETS = record.ROOT / "docs/assets"
_SHOWN = {"text": "english", "tokenizer": "gpt2", "cores": 1}
_OTHER_INPUT = ("tokenmill, Arrow",)  # all others get a list of str
_WIDTH, _LEFT, _RIGHT = 400, 92, 52  # the figure; the names; the numbers behind the longest bar
_ROW, _BAR, _TOP = 36, 13, 56


class _Colors(NamedTuple):
    text: str
    faint: str
    own: str
    own_fresh: str
    other: str
    other_fresh: str


_THEMES = {
    "light": _Colors("#1f2328", "#59636e", "#0b6e4f", "#7cc4a8", "#6b7785", "#bcc4cd"),
    "dark": _Colors("#e6edf3", "#9aa5b1", "#3ddc97", "#1f7a57", "#8b98a5", "#48535e"),
}


def main() -> None:
    ASSETS.mkdir(parents=True, exist_ok=True)
    for name, svg in drawn(record.newest()["encode"]).items():
        (ASSETS / name).write_text(svg, encoding="utf-8")
        print(ASSETS / name)


def drawn(section: dict[str, Any]) -> dict[str, str]:
    """The figures of a record's section `encode`, by the names of their files."""
    cells = [cell for cell in section["cells"] if _SHOWN.items() <= cell.items() and cell.get("answer") == "same"]
    shown = [cell for cell in cells if cell["tool"] not in _OTHER_INPUT]
    shown.sort(key=lambda cell: -_best(cell))
    return {f"speed-{theme}.svg": _svg(shown, section, colors) for theme, colors in _THEMES.items()}


def _svg(cells: Sequence[dict[str, Any]], section: dict[str, Any], colors: _Colors) -> str:
    most = max(max(record.speeds(cell, "first") + record.speeds(cell, "later")) for cell in cells)
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    height = _TOP + _ROW * len(cells) + 46
    speeds = "; ".join(f"{cell['tool']} {_best(cell):,.0f}" for cell in cells)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'role="img" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13">',
        f"<title>Encoding English text with the gpt2 tokenizer on one core, MB/s: {speeds}</title>",
        _text(0, 16, "Encoding English text, gpt2, one core", colors.text, size=15, weight=600),
        _text(0, 36, "MB/s, more is better:", colors.faint),
        *_key(140, colors),
    ]
    for i, cell in enumerate(cells):
        lines += _row(_TOP + _ROW * i, cell, scale, colors)
    machine = section["machine"]
    n_runs = max(len(cell["runs_first_s"]) for cell in cells)
    foot = _TOP + _ROW * len(cells) + 16
    lines += [
        _text(
            0,
            foot,
            f"{machine['cpu']}, {section['date']}, shared machine, processor time.",
            colors.faint,
            size=11,
        ),
        _text(
            0,
            foot + 16,
            f"Median of {n_runs} runs, lines from lowest to highest. All gave the same ids.",
            colors.faint,
            size=11,
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _key(x: int, colors: _Colors) -> Iterator[str]:
    for color, words, width in ((colors.own, "text met before", 118), (colors.own_fresh, "fresh text", 0)):
        yield f'<rect x="{x}" y="26" width="11" height="11" fill="{color}"/>'
        yield _text(x + 16, 36, words, colors.faint)
        x += 16 + width


def _row(y: int, cell: dict[str, Any], scale: float, colors: _Colors) -> Iterator[str]:
    is_own = cell["tool"] == "tokenmill"
    yield _text(0, y + 18, cell["tool"], colors.text, weight=600 if is_own else 400)
    later, fresh = (colors.own, colors.own_fresh) if is_own else (colors.other, colors.other_fresh)
    bars = [
        (runs, color) for kind, color in (("later", later), ("first", fresh)) if (runs := record.speeds(cell, kind))
    ]
    y += (_ROW - 6 - _BAR * len(bars)) // 2
    for runs, color in bars:
        middle = median(runs)
        at = y + _BAR / 2
        yield f'<rect x="{_LEFT}" y="{y}" width="{max(middle * scale, 1):.1f}" height="{_BAR - 1}" fill="{color}"/>'
        if max(runs) > min(runs):
            ends = f'x1="{_LEFT + min(runs) * scale:.1f}" x2="{_LEFT + max(runs) * scale:.1f}"'
            yield f'<line {ends} y1="{at - 0.5}" y2="{at - 0.5}" stroke="{colors.text}" stroke-width="1"/>'
        yield _text(
            _LEFT + max(runs) * scale + 6,
            y + 11,
            f"{middle:,.0f}" if middle >= 10 else f"{middle:.1f}",
            colors.text,
            size=12,
        )
        y += _BAR


def _best(cell: dict[str, Any]) -> float:
    return median(record.speeds(cell, "later") or record.speeds(cell, "first"))


def _text(x: float, y: float, words: str, color: str, size: int = 13, weight: int = 400) -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{color}" font-size="{size}" font-weight="{weight}">{words}</text>'


if __name__ == "__main__":
    main()
