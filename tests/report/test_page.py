"""The page of a report shows texts of documents as they are, and none of them as HTML."""

from tokenmill.report.page import _printable, _template, _token


def test_values_are_escaped_and_control_characters_are_shown_as_codes() -> None:
    shown = _template().environment.from_string("{{ value }}").render(value="<b>&\x1b\n")
    assert shown == "&lt;b&gt;&amp;\\u001b\n"
    assert _printable(3) == 3


def test_a_token_is_a_chip_with_visible_blanks() -> None:
    assert _token(" <a>\n") == '<bdi class="t"><i>·</i>&lt;a&gt;<i>⏎</i></bdi>'
