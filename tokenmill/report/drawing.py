"""Draws the charts of a page in a separate process, because the drawing library may crash, or take minutes for one chart.

`python -m tokenmill.report.drawing` reads charts of Vega-Lite as a JSON list, and writes their SVGs as a JSON list.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tokenmill.child_limits import limit_memory
from tokenmill_reader.child_python import command_of

_VEGA_LITE = "6.4"
"""The version of Vega-Lite that the charts are written for, as plain JSON: importing Altair would take 0.3 s of each build."""

_DRAW_S_MAX = 20
_DATA_BYTES_MAX = 2_000_000_000
_NOT_DRAWN = "<p>This plot could not be drawn on this machine. Its numbers are in report.json.</p>"


_begun: list[subprocess.Popen[bytes]] = []
"""The drawing process that waits for charts, if there is one. It ends with this process, as its input does."""


def begin() -> None:
    """Starts the drawing process beside other work, because it takes 0.4 s until it can draw."""
    if not _begun:
        with suppress(OSError):
            _begun.append(_process())


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
    try:
        with _begun.pop() if _begun else _process() as process:
            try:
                svgs, _ = process.communicate(f"[{','.join(charts)}]".encode(), _DRAW_S_MAX)
            finally:
                process.kill()
        return [str(svg) for svg in json.loads(svgs)]
    except (subprocess.SubprocessError, OSError, ValueError):
        return []


def _process() -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command_of("tokenmill.report.drawing"), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def main() -> None:
    """Draws the charts on standard input."""
    limit_memory(_DATA_BYTES_MAX)
    import vl_convert

    vl_convert.vegalite_to_svg({"mark": "point"}, _VEGA_LITE, allowed_base_urls=[])  # the first chart takes 0.4 s more
    charts = json.load(sys.stdin)
    json.dump([vl_convert.vegalite_to_svg(chart, _VEGA_LITE, allowed_base_urls=[]) for chart in charts], sys.stdout)


if __name__ == "__main__":
    main()
