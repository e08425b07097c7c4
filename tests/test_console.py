"""The progress line and the summary table at every width, on a terminal, in a pipe, in a CI log and in a notebook."""

import os
import pty
import re
import subprocess
import sys
import time
import types

import pytest

from tests.conftest import REPOSITORY
from tokenmill import summary
from tokenmill.console import Progress, line_of, progress
from tokenmill.summary import StageSummary, table_lines
from tokenmill_reader.shown import size

SUMMARIES = [
    StageSummary("count", "run", 10, 123_456, 5612.3, 4200.1, None, 12.3, 181.0, 5612.3),
    StageSummary("train-vocab", "run", vocab_size=16_384, text_mb=4200.1, seconds=12.3, peak_mb=181.0),
    StageSummary("validate", "not needed"),
]
SHOWING = """
from tokenmill.console import progress, say
with progress("encode", 4_000_000, "bytes") as now:
    now.skip(1_000_000)
    now.add(3_000_000, 700_000)
    say("a line between")
"""


def half_done() -> Progress:
    now = Progress("encode", 5_600_000_000, "bytes", start_s=time.monotonic() - 100)
    now.skip(800_000_000)
    now.add(2_000_000_000, 1_234_567_890)
    return now


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [
        (0, "0 bytes"),
        (133, "133 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (57_300_000, "57.3 MB"),
        (5_612_345_678, "5.6 GB"),
        (12_345_600_000_000, "12,345.6 GB"),
    ],
)
def test_a_size_has_the_unit_that_fits_it(n_bytes: int, words: str) -> None:
    assert size(n_bytes) == words


@pytest.mark.parametrize("width", range(60, 201))
def test_a_line_says_what_is_left_at_every_width_and_is_no_longer(width: int) -> None:
    for now in (half_done(), Progress("train-vocab", 16_384, "tokens", done=8_192)):
        line = "".join(line_of(now, width))
        assert len(line) <= width
        assert f"{now.stage:<11}  50% ━" in line
        assert " left" in line
    assert "".join(line_of(half_done(), width)).count("  2.8 of 5.6 GB  2:20 left  20.0 MB/s") == 1


def test_a_wide_line_has_the_tokens_too() -> None:
    assert "1,234,567,890 tokens" in "".join(line_of(half_done(), 100))
    assert "tokens" not in "".join(line_of(half_done(), 60))


def test_what_was_done_before_says_nothing_about_the_speed_and_the_end_says_how_long_it_took() -> None:
    now = half_done()
    assert str(now) == "encode: 50%, 2.8 of 5.6 GB, 2:20 left, 20.0 MB/s, 1,234,567,890 tokens"
    now.add(9_000_000_000)
    now.end_s = now.start_s + 7322
    assert str(now).startswith("encode: 100%, 5.6 of 5.6 GB, in 2:02:02, ")


@pytest.mark.parametrize("width", range(60, 201))
def test_a_table_is_no_wider_than_the_terminal_and_keeps_what_matters_most(width: int) -> None:
    lines = table_lines(SUMMARIES, width)
    assert max(map(len, lines)) <= width
    assert [line.split("  ")[0].rstrip() for line in lines] == ["stage", "count", "train-vocab", "validate"]
    for name in ("read", "tokens"):
        assert name in lines[0]
    assert lines[-1].endswith("not needed")
    assert ("peak memory" in lines[0]) == (width >= 104)


def test_a_table_in_a_pipe_has_every_column() -> None:
    head, count, *_ = table_lines(SUMMARIES, None)
    assert head.split() == " ".join(summary._COLUMNS).split()
    assert count.endswith("  456.3 MB     181.0 MB  run")


def on_a_terminal(**environment: str) -> str:
    """What SHOWING writes to a terminal of 80 columns."""
    ours, its = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-c", SHOWING]
    place = {"PYTHONPATH": str(REPOSITORY), "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, env=known | place | environment, stderr=its, stdin=its) as process:
        os.close(its)
        said = b""
        try:
            while block := os.read(ours, 4096):
                said += block
        except OSError:  # the terminal has ended
            pass
        os.close(ours)
        assert process.wait() == 0
    return said.decode()


def test_a_terminal_shows_a_bar_and_the_lines_between_stand_above_it() -> None:
    said = on_a_terminal()
    assert "\x1b[32m━" in said
    assert "a line between\r\n" in said
    assert re.search("4.0 of 4.0 MB  in 0:0[0-9]", said)
    assert "\x1b[32m" not in on_a_terminal(NO_COLOR="1")


@pytest.mark.parametrize("environment", [{"CI": "true"}, {"TERM": "dumb"}])
def test_a_log_gets_plain_lines_even_where_it_is_a_terminal(environment: dict[str, str]) -> None:
    assert on_a_terminal(**environment).splitlines() == ["encode: started, 4.0 MB of files", "a line between"]


def test_a_pipe_gets_plain_lines() -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", SHOWING], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["encode: started, 4.0 MB of files", "a line between"]


def test_a_notebook_has_one_line_that_is_written_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = types.SimpleNamespace(get_ipython=type("ZMQInteractiveShell", (), {}))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    with progress("count", 4_000_000, "bytes") as now:
        now.add(1_000_000)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith("\n")
    first, *_, last = said.strip().split("\r")
    assert first.startswith("count         0% ")
    assert last.startswith("count       100% ━")


def test_the_table_is_one_output_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = types.SimpleNamespace(get_ipython=type("ZMQInteractiveShell", (), {}))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)  # as a kernel's own stream says
    summary.table(SUMMARIES)
    assert capsys.readouterr().out == "\n".join(table_lines(SUMMARIES, None)) + "\n"


def test_a_rate_is_of_the_files_that_were_read_now() -> None:
    half = StageSummary("count", "run", 4, 10, file_mb=80.0, seconds=2.0, done_mb=10.0)
    nothing = StageSummary("encode", "run", 4, 10, file_mb=80.0, seconds=2.0, done_mb=0.0)
    _, first, second = table_lines([half, nothing], None)
    assert "10.0 MB" in first and "5.0 MB" in first
    assert "80.0 MB" not in first + second
