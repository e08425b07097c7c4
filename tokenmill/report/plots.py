"""The plots of report.html: Vega-Lite charts as SVG, in the page's colours for light, dark and print."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenmill.report import drawing

Chart = Mapping[str, Any]
"""A chart of Vega-Lite."""

WIDTH = 640
SERIES = 6
"""The page's colours of series; a seventh series gets the first one again."""

_COLOURS = {"#010101": "ink", "#020202": "muted", "#030303": "grid"} | {
    f"#0{i}0a0b": f"series-{i}" for i in range(1, SERIES + 1)
}
"""Placeholder colours in the charts, one for each variable of the page's style sheet."""

_INK, _MUTED, _GRID, *_SERIES = _COLOURS
_ON_WHITE = dict(
    zip(
        _COLOURS,
        ("#1c1e21", "#5b6167", "#dfe2e5", "#2563a8", "#c2571a", "#2e7d4f", "#8e44ad", "#a67c00", "#b3365b"),
        strict=True,
    )
)
"""The colours of the page's light style sheet, for a chart that is a file of its own."""

_ROW_HEIGHT = 22
_LABEL_CHARACTERS_MAX = 60


def drawn(charts: Mapping[str, Chart]) -> dict[str, str]:
    """Each chart, by its name, as an SVG element in the colours of the page's style sheet."""
    colours = {colour: f"var(--{variable})" for colour, variable in _COLOURS.items()}
    return dict(zip(charts, drawing.drawn(list(charts.values()), colours), strict=True))


def by_vocab_size(rows: Sequence[Mapping[str, float]]) -> Chart:
    """The chart of bytes per token against vocabulary size."""
    return _line(rows, ("vocab_size", "vocabulary size"), ("bytes_per_token", "bytes per token"), ",d")


def ladder(rows: Sequence[Mapping[str, Any]]) -> str:
    """The chart of bytes per token against vocabulary size, a line a pattern, as an SVG file on white. `rows`: the fields of
    vocabularies; a ring is around those that have `is_knee`."""
    shown = _shown(dict.fromkeys(row["pattern"] for row in rows))
    chart = dict(
        _chart(
            [{**row, "pattern": shown[row["pattern"]]} for row in rows],
            {},
            {
                "x": _number("vocab_size", "vocabulary size", scale={"type": "log", "base": 2}, axis={"format": ",d"}),
                "y": _number("bytes_per_token", "bytes per token", scale={"zero": False}, axis={"tickCount": 6}),
                "color": {
                    "field": "pattern",
                    "type": "nominal",
                    "legend": {"orient": "top", "title": None},
                    "scale": {
                        "domain": list(shown.values()),
                        "range": [_SERIES[i % SERIES] for i in range(len(shown))],
                    },
                },
            },
            320,
        )
    )
    chart["background"] = "white"
    del chart["mark"]
    ring = {"type": "point", "size": 260, "strokeWidth": 2}
    words = {"type": "text", "dy": -18, "fontSize": 12}
    knee = [{"filter": "datum.is_knee"}]
    chart["layer"] = [
        {"mark": {"type": "line", "strokeWidth": 2, "point": {"size": 50}}},
        {"mark": ring, "transform": knee},
        {"mark": words, "transform": knee, "encoding": {"text": {"value": "knee"}}},
    ]
    [svg] = drawing.drawn([chart], _ON_WHITE)
    return svg


def ranks(rows: Sequence[Mapping[str, float]]) -> Chart:
    """The chart of token counts against ranks, both logarithmic."""
    return _line(rows, ("rank", "rank"), ("count", "occurrences"), "~s", log=True)


def coverage(rows: Sequence[Mapping[str, float]]) -> Chart:
    """The chart of the share of all tokens that the most frequent ones are, against their number, which is logarithmic."""
    return _chart(
        rows,
        {"type": "line", "color": _SERIES[0], "strokeWidth": 2},
        {
            "x": _number(
                "tokens",
                "most frequent tokens",
                scale={"type": "log", "nice": False},
                axis={"format": "~s", "tickCount": 6},
            ),
            "y": _number(
                "share", "share of all tokens", scale={"domain": [0, 1]}, axis={"format": ".0%", "tickCount": 6}
            ),
        },
        260,
    )


def groups(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Chart:
    """The chart of bytes per token by group of documents, with a mark for each tokenizer. `labels`: the tokenizers, in order."""
    shown = _shown(dict.fromkeys(row["group"] for row in rows))
    rows = [{**row, "group": shown[row["group"]]} for row in rows]
    domain, colours = list(labels), [_SERIES[i % SERIES] for i in range(len(labels))]
    of_tokenizer = {
        "field": "tokenizer",
        "type": "nominal",
        "legend": {"orient": "top", "title": None} if len(labels) > 1 else None,
    }
    return _chart(
        rows,
        {"type": "point", "filled": True, "size": 90, "opacity": 1},
        {
            "x": _number("bytes_per_token", "bytes per token", scale={"zero": True}, axis={"tickCount": 6}),
            "y": {"field": "group", "type": "nominal", "title": None, "sort": list(shown.values())},
            "color": of_tokenizer | {"scale": {"domain": domain, "range": colours}},
            "shape": of_tokenizer | {"scale": {"domain": domain}},
        },
        _ROW_HEIGHT * max(len(shown), 2),
    )


def lengths(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """The chart of document lengths in tokens, in bins that double."""
    bars = [{"tokens": f"{row['from']:,}", "documents": row["documents"]} for row in rows]
    title = "tokens, from … to twice as many"
    return _chart(
        bars,
        {"type": "bar", "color": _SERIES[0]},
        {
            "x": {"field": "tokens", "type": "nominal", "title": title, "sort": [bar["tokens"] for bar in bars]},
            "y": _number("documents", "documents", axis={"tickCount": 5, "format": "~s"}),
        },
        220,
    )


def _shown(names: Iterable[str]) -> dict[str, str]:
    """Cleans and shortens the labels of groups: a control character crashes the drawing process, and a long label takes minutes."""
    shown: dict[str, str] = {}
    for i, name in enumerate(names):
        label = "".join(one if one.isprintable() else "\ufffd" for one in name[:_LABEL_CHARACTERS_MAX])
        label += "…" if len(name) > _LABEL_CHARACTERS_MAX else ""
        shown[name] = f"{label} ({i + 1})" if label in shown.values() else label
    return shown


def _line(
    rows: Sequence[Mapping[str, float]], x: tuple[str, str], y: tuple[str, str], format: str, log: bool = False
) -> Chart:
    scale = {"type": "log", "nice": True} if log else {"zero": False, "nice": True}
    return _chart(
        rows,
        {"type": "line", "color": _SERIES[0], "strokeWidth": 2},
        {
            "x": _number(*x, scale={**scale, "nice": not log}, axis={"format": format, "tickCount": 6}),
            "y": _number(*y, scale=scale, axis={"format": "~s", "tickCount": 6}),
        },
        260,
    )


def _number(field: str, title: str, **more: Mapping[str, Any]) -> dict[str, Any]:
    """Vega-Lite's encoding of a column of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def _chart(
    rows: Sequence[Mapping[str, Any]], mark: Mapping[str, Any], encoding: Mapping[str, Any], height: int
) -> Chart:
    """The chart of these rows."""
    axis = {"labelColor": _INK, "titleColor": _MUTED, "gridColor": _GRID, "domainColor": _MUTED, "tickColor": _MUTED}
    fonts = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 220}
    return {
        "data": {"values": list(rows)},
        "mark": mark,
        "encoding": encoding,
        "width": WIDTH,
        "height": height,
        "background": "transparent",
        "config": {
            "font": "system-ui, sans-serif",
            "padding": {"left": 12, "right": 12, "top": 5, "bottom": 5},
            "view": {"stroke": None},
            "axis": axis | fonts,
            "axisX": {"labelAngle": 0, "labelOverlap": True},
            "legend": {"labelColor": _INK, "labelFontSize": 12, "labelLimit": 220, "symbolSize": 90},
        },
    }
