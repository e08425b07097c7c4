"""Charts are drawn in another process, so that nothing in a document's labels ends the build."""

import resource
import subprocess
import sys

import pytest

from tokenmill.report import plots
from tokenmill.report.drawing import marked, with_drawings

ROWS = [{"group": "lang: en", "tokenizer": "own", "bytes_per_token": 4.0}]
LONG = "x" * 50_000
ODD = ["\x00", "\x01", "\x1b[31m", "\ufffe", "\uffff", LONG, f"{LONG}y", "</x-chart><script>"]


def test_a_page_has_each_chart_in_its_place() -> None:
    page = plots.drawn(f"<p>a</p>{plots.ranks([{'rank': 1, 'count': 5}])}<p>b #010101</p>{plots.groups(ROWS, ['own'])}")
    assert page.startswith("<p>a</p><svg") and "</svg><p>b #010101</p><svg" in page and page.endswith("</svg>")
    assert "var(--series-1)" in page and "lang: en" in page


def test_labels_of_any_text_are_drawn() -> None:
    page = plots.drawn(plots.groups([{**ROWS[0], "group": name} for name in ODD], ["own"]))
    assert page.count("<svg") == 1 and "<script>" not in page and "x" * 61 not in page
    assert f"{'x' * 60}… (7)" in page, "two long labels stay two groups"


def test_a_chart_that_ends_the_process_is_a_sentence_and_the_others_are_drawn() -> None:
    fatal = {"mark": "point", "data": {"values": [{"a": "\x01"}]}, "encoding": {"y": {"field": "a", "type": "nominal"}}}
    page = with_drawings(f"{marked(fatal)}|{plots.ranks([{'rank': 1, 'count': 5}])}", {})
    assert page.startswith("<p>This plot could not be drawn") and page.endswith("</svg>")


@pytest.mark.parametrize("n_bytes", [4_000_000_000, 50_000_000_000])
def test_a_page_is_made_under_a_limit_of_address_space(n_bytes: int) -> None:
    code = "from tokenmill.report import plots; print(plots.drawn(plots.ranks([{'rank': 1, 'count': 5}])))"
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))  # noqa: E731
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 0 and "could not be drawn" in done.stdout, done.stderr
