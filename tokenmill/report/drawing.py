"""Draws the charts of a page in a separate process, because the drawing library may crash, or take minutes for one chart.

`python -m tokenmill.report.drawing` reads charts of Vega-Lite as a JSON list, and writes their SVGs as a JSON list.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from html import escape, unescape

from tokenmill.limits import limit_memory

_VEGA_LITE = "6.4"
"""The version of Vega-Lite that the charts are written for, as plain JSON: importing Altair would take 0.3 s of each build."""

_DRAW_S_MAX = 20
_DATA_BYTES_MAX = 2_000_000_000
_MARK = re.compile(r"<x-chart>(.*?)</x-chart>", re.DOTALL)
_NOT_DRAWN = "<p>This plot could not be drawn on this machine. Its numbers are in report.json.</p>"


def marked(chart: object) -> str:
    """A placeholder element for a chart, which `with_drawings` replaces."""
    return f"<x-chart>{escape(json.dumps(chart))}</x-chart>"


def with_drawings(page: str, colours: Mapping[str, str]) -> str:
    """Replaces each placeholder by an SVG element, or by a sentence if the chart cannot be drawn. `colours`: the page's value for
    each colour of a chart."""
    charts = [unescape(one) for one in _MARK.findall(page)]
    drawn = _drawn(charts) or [svg for chart in charts for svg in _drawn([chart]) or [_NOT_DRAWN]]
    for colour, instead in colours.items():
        drawn = [svg.replace(colour, instead) for svg in drawn]
    svgs = iter(drawn)
    return _MARK.sub(lambda _: next(svgs), page)


def _drawn(charts: Sequence[str]) -> list[str]:
    """The SVGs of charts; empty if the drawing process fails or takes too long."""
    if not charts:
        return []
    command = [sys.executable, "-P", "-m", "tokenmill.report.drawing"]
    try:
        done = subprocess.run(
            command, input=f"[{','.join(charts)}]".encode(), capture_output=True, timeout=_DRAW_S_MAX, check=True
        )
        return [str(svg) for svg in json.loads(done.stdout)]
    except (subprocess.SubprocessError, OSError, ValueError):
        return []


def main() -> None:
    """Draws the charts on standard input."""
    limit_memory(_DATA_BYTES_MAX)
    import vl_convert

    charts = json.load(sys.stdin)
    json.dump([vl_convert.vegalite_to_svg(chart, _VEGA_LITE, allowed_base_urls=[]) for chart in charts], sys.stdout)


if __name__ == "__main__":
    main()
