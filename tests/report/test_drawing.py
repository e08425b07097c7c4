"""Charts are drawn in another process, so that nothing in a document's labels ends the build."""

import resource
import subprocess
import sys

import pytest

from tokenmill.report import drawing, plots
from tokenmill.report.drawing import drawn

ROWS = [{"group": "lang: en", "tokenizer": "own", "bytes_per_token": 4.0}]
LONG = "x" * 50_000
ODD = ["\x00", "\x01", "\x1b[31m", "\ufffe", "\uffff", LONG, f"{LONG}y", "</x-chart><script>"]


def test_each_chart_is_drawn_in_the_colours_of_the_page() -> None:
    found = plots.drawn({"ranks": plots.ranks([{"rank": 1, "count": 5}]), "groups": plots.groups(ROWS, ["own"])})
    assert list(found) == ["ranks", "groups"]
    assert all(one.startswith("<svg") and one.endswith("</svg>") for one in found.values())
    assert "var(--series-1)" in found["ranks"] and "lang: en" in found["groups"]


def test_labels_of_any_text_are_drawn() -> None:
    svg = plots.drawn({"a": plots.groups([{**ROWS[0], "group": name} for name in ODD], ["own"])})["a"]
    assert svg.count("<svg") == 1 and "<script>" not in svg and "x" * 61 not in svg
    assert f"{'x' * 60}… (7)" in svg, "two long labels stay two groups"


def test_a_chart_that_ends_the_process_is_a_sentence_and_the_others_are_drawn() -> None:
    fatal = {"mark": "point", "data": {"values": [{"a": "\x01"}]}, "encoding": {"y": {"field": "a", "type": "nominal"}}}
    first, second = drawn([fatal, plots.ranks([{"rank": 1, "count": 5}])], {})
    assert first.startswith("<p>This plot could not be drawn") and second.endswith("</svg>")


def test_a_process_that_began_early_draws_the_same_and_is_replaced_if_it_died() -> None:
    chart = plots.ranks([{"rank": 1, "count": 5}])
    expected = drawn([chart], {})
    drawing.begin()
    [early] = drawing._begun
    assert drawn([chart], {}) == expected and early.poll() is not None
    drawing.begin()
    drawing._begun[0].kill()
    assert drawn([chart], {}) == expected


@pytest.mark.parametrize("n_bytes", [4_000_000_000, 50_000_000_000])
def test_a_page_is_made_under_a_limit_of_address_space(n_bytes: int) -> None:
    code = "from tokenmill.report import plots; print(plots.drawn({'a': plots.ranks([{'rank': 1, 'count': 5}])}))"
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))  # noqa: E731
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 0 and "could not be drawn" in done.stdout, done.stderr
