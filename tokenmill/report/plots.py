"""The plots of report.html: Altair's charts as SVG, whose colours are those of the page in light, dark and print."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 640
SERIES = 6
"""Colours of series that the page has; a seventh series gets the first again."""

_COLOURS = {"#010101": "ink", "#020202": "muted", "#030303": "grid"} | {
    f"#0{i}0a0b": f"series-{i}" for i in range(1, SERIES + 1)
}
"""The colours in the charts, each of which stands for a variable of the page's style sheet."""

_INK, _MUTED, _GRID, *_SERIES = _COLOURS
_ROW_HEIGHT = 22


def by_vocab_size(rows: Sequence[Mapping[str, float]]) -> str:
    """Bytes per token against vocabulary size."""
    return _line(rows, ("vocab_size", "vocabulary size"), ("bytes_per_token", "bytes per token"), ",d")


def ranks(rows: Sequence[Mapping[str, float]]) -> str:
    """The counts of tokens against their ranks, both logarithmic."""
    return _line(rows, ("rank", "rank"), ("count", "occurrences"), "~s", log=True)


def groups(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> str:
    """Bytes per token of each group of documents, one mark for each tokenizer. `labels`: the tokenizers, in order."""
    import altair as alt

    names = list(dict.fromkeys(row["group"] for row in rows))
    scale = alt.Scale(domain=list(labels), range=[_SERIES[i % SERIES] for i in range(len(labels))])
    legend = alt.Legend(orient="top", title=None) if len(labels) > 1 else None
    chart = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            x=alt.X(
                "bytes_per_token:Q", title="bytes per token", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6)
            ),
            y=alt.Y("group:N", title=None, sort=names),
            color=alt.Color("tokenizer:N", scale=scale, legend=legend),
            shape=alt.Shape("tokenizer:N", scale=alt.Scale(domain=list(labels)), legend=legend),
        )
    )
    return _svg(chart, _ROW_HEIGHT * max(len(names), 2))


def lengths(rows: Sequence[Mapping[str, Any]]) -> str:
    """The number of documents by their length in tokens, in bins that double."""
    import altair as alt

    bars = [{"tokens": f"{row['from']:,}", "documents": row["documents"]} for row in rows]
    chart = (
        alt.Chart(alt.Data(values=bars))
        .mark_bar(color=_SERIES[0])
        .encode(
            x=alt.X("tokens:N", title="tokens, from … to twice as many", sort=[bar["tokens"] for bar in bars]),
            y=alt.Y("documents:Q", title="documents", axis=alt.Axis(tickCount=5, format="~s")),
        )
    )
    return _svg(chart, 220)


def _line(
    rows: Sequence[Mapping[str, float]], x: tuple[str, str], y: tuple[str, str], format: str, log: bool = False
) -> str:
    import altair as alt

    scale = alt.Scale(type="log", nice=True) if log else alt.Scale(zero=False, nice=True)
    chart = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_line(color=_SERIES[0], strokeWidth=2)
        .encode(
            x=alt.X(f"{x[0]}:Q", title=x[1], scale=scale, axis=alt.Axis(format=format, tickCount=6)),
            y=alt.Y(f"{y[0]}:Q", title=y[1], scale=scale, axis=alt.Axis(format="~s", tickCount=6)),
        )
    )
    return _svg(chart, 260)


def _svg(chart: Any, height: int) -> str:
    """The chart as an SVG element."""
    import vl_convert

    axis = {"labelColor": _INK, "titleColor": _MUTED, "gridColor": _GRID, "domainColor": _MUTED, "tickColor": _MUTED}
    fonts = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 220}
    chart = (
        chart.properties(width=WIDTH, height=height, background="transparent")
        .configure(font="sans-serif", padding={"left": 12, "right": 12, "top": 5, "bottom": 5})
        .configure_view(stroke=None)
        .configure_axis(**axis, **fonts)
        .configure_axisX(labelAngle=0, labelOverlap=True)
        .configure_legend(labelColor=_INK, labelFontSize=12, labelLimit=220, symbolSize=90)
    )
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict(validate=False), _version(), allowed_base_urls=[])
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return svg


@functools.cache
def _version() -> str:
    """The version of Vega-Lite that Altair's charts are written for."""
    import altair as alt

    return "_".join(alt.SCHEMA_VERSION.split(".")[:2])
