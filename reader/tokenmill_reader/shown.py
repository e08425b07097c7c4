"""Text for people: without control sequences and passwords, and with short numbers of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable

_JOINERS = "\u200c\u200d"  # inside words of Persian and Hindi, and inside emoji
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))

_SLASHES = r"(?<=[a-z0-9+.-]{2})((?::|%3a)(?:/|%2f)+)"

# A number at the end of an authority is a port, and $ begins a variable. A password may have a slash or an @ that should
# have been written as %2F or %40, and a URL in another one has %3A and %40 for : and @.
_USER = re.compile(
    _SLASHES
    + r"""((?:(?!%2f|%3a)[^/\s:@\[])*(?::|%3a)(?!\$|\d*(?:[/\s?#"')\],]|%2f|$))(?:[^\s@]{,999}@|(?:(?!%2f)[^\s@/]){,999}%40)"""
    + r"""|(?!\$)(?:(?!%2f|%40)[^\s/:@\[\]?#"'<>(),;])+(?:@|%40))(?:[^\s/@"'<>]*@)*""",
    re.IGNORECASE,
)
_MARK = "(?:[?#;]|%3f|%23|%3b)"
_QUERY = re.compile(
    _SLASHES + rf"""(?:(?!{_MARK})[^\s"'<>])*(?:({_MARK})([^\s"'<>]*[^\s"'<>:,.;)\]}}]))?""", re.IGNORECASE
)
_TOKEN = re.compile(
    r"\b(?:((?:gh[opsur]|hf)_)[A-Za-z0-9]{30,}|(github_pat_)\w{50,}|(glpat-)[\w-]{20,}|(xox[a-z]-)[\w-]{10,}"
    r"|(hooks\.slack\.com/services/)[\w/]+)"
)
"""Tokens in the forms of GitHub, Hugging Face, GitLab and Slack, wherever they stand. A folder may be named hf_datasets."""
_WITH_A_NAME = re.compile(rf"(?:{_MARK}|&|%26)[a-z_](?:(?!%3f|%23|%3b|%26|%3d)[\w.~%-])*(=|%3d)", re.IGNORECASE)


def as_shown(lines: str | Iterable[str]) -> str:
    r"""Lines as text for a terminal; a str is one line. What is not printable becomes an escape, newlines too: names and texts come
    from others, who could forge lines with them.

    >>> as_shown(["a.jsonl\nright", "\x1b]0;title\x07"])
    'a.jsonl\\nright\n\\x1b]0;title\\x07'
    """
    some = [lines] if isinstance(lines, str) else lines
    return "\n".join("".join(map(_shown, line)) for line in some)


def _shown(character: str) -> str:
    return character if character.isprintable() or character in _JOINERS else ascii(character)[1:-1]


def without_passwords(text: str) -> str:
    """The text with *** in place of the user, the password and the query of each URL in it. A user alone stays where it is a name,
    as in ssh://git@host: for https it is often a token.

    >>> without_passwords("fatal: 'https://user:p@ss@host:8443/x.git' not found, https://TOKEN@host/x?token=TOKEN")
    "fatal: 'https://***@host:8443/x.git' not found, https://***@host/x?***"
    """
    return _TOKEN.sub(
        lambda token: f"{token[token.lastindex or 0]}***", _QUERY.sub(_without_query, _USER.sub(_without_user, text))
    )


def _without_user(url: re.Match[str]) -> str:
    is_alone = not re.search(":|%3a", url[2], re.IGNORECASE)
    return url[0] if is_alone and _has_scheme(url, "ssh", "sftp", "hdfs", "abfs", "abfss") else f"{url[1]}***@"


def _without_query(url: re.Match[str]) -> str:
    if url[2] is None or (url[2][0] == "%" and _has_scheme(url, "file")):  # there it is a letter of a name
        return url[0]
    mark, query = url[2], url[2] + url[3]
    if not _WITH_A_NAME.search(query) and ("?" not in query or _has_scheme(url, "s3", "gs", "az", "hf", "file")):
        return url[0]  # a link to a section, or a glob, in which ? is any character
    return f"{url[0].removesuffix(query)}{mark}***"


def _has_scheme(url: re.Match[str], *schemes: str) -> bool:
    # It stands before the match, as a regex that begins with a scheme looks for one at every letter.
    return url.string[: url.start()][-9:].lower().endswith(schemes)


def size(n_bytes: float) -> str:
    """A number of bytes, such as 12 bytes, 4.5 kB or 1.2 GB.

    >>> size(4_500)
    '4.5 kB'
    """
    scale, unit = scale_of(n_bytes)
    return f"{n_bytes / scale:,.1f} {unit}" if scale > 1 else f"{n_bytes:.0f} bytes"


def scale_of(n_bytes: float) -> tuple[float, str]:
    """The unit that fits a number of bytes: how many bytes it has, and its name."""
    return next(((scale, unit) for scale, unit in _UNITS if n_bytes >= scale * 0.99995), (1, "bytes"))
