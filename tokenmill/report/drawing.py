"""Draws the charts of a page in a separate process, because the drawing library may crash, or take minutes for one chart.

`python -m tokenmill.report.drawing` reads charts of Vega-Lite as a JSON list, and writes their SVGs as a JSON list.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tokenmill.process_memory import limit_memory

_VEGA_LITE = "6.4"
"""The version of Vega-Lite that the charts are written for, as plain JSON: importing Altair would take 0.3 s of each build."""

_DRAW_S_MAX = 20
_DATA_BYTES_MAX = 2_000_000_000
_NOT_DRAWN = "<p>This plot could not be drawn on this machine. Its numbers are in report.json.</p>"


def drawn(charts: Sequence[object], colours: Mapping[str, str]) -> list[str]:
    """Each chart as an SVG element, or as a sentence if it cannot be drawn. `colours`: the page's value for each colour of a
    chart."""
    texts = [json.dumps(chart) for chart in charts]
    svgs = _drawn(texts) or [svg for text in texts for svg in _drawn([text]) or [_NOT_DRAWN]]
    for colour, instead in colours.items():
        svgs = [svg.replace(colour, instead) for svg in svgs]
    return svgs


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
