"""Secrets in URLs, which are passwords, tokens and signatures: they are cut out of what is said."""

from __future__ import annotations

import re

_SLASHES = r"(?P<slashes>(?<=[a-z0-9+.-]{2})(?::|%3a)(?:/|%2f){1,9})"

# A number at the end of an authority is a port, and $ begins a variable. A password may have a slash or an @ that should
# have been written as %2F or %40, and the URL may be a part of another one, in which %3A and %40 stand for : and @.
_USER = re.compile(
    rf"""(?ix) {_SLASHES}
    (?: (?P<password> (?: (?!%2f|%3a) [^/\s:@\[] )* (?::|%3a) (?! \$ | \d*(?:[/\s?\#"')\],]|%2f|$) )
            (?: [^\s@]{{,999}}@ | (?: (?!%2f) [^\s@/] ){{,999}}%40 ) )
      | (?!\$) (?: (?!%2f|%40) [^\s/:@\[\]?\#"'<>(),;] )+ (?:@|%40) )
    (?: [^\s/@"'<>]*@ )*"""
)
_QUERY = re.compile(rf"""(?ix) {_SLASHES} [^\s?\#"'<>]* (?P<query> [?\#] [^\s"'<>]* [^\s"'<>:,.;)\]}}] )?""")
_WITH_A_NAME = re.compile(r"[?#&;][a-z_][\w.~%-]*(?:=|%3d)", re.IGNORECASE)

_SCHEME_MAX = 30
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*\Z", re.IGNORECASE)
_USERS_ARE_NAMES = frozenset(("ssh", "git+ssh", "ssh+git", "svn+ssh", "sftp", "scp", "rsync", "hdfs", "abfs", "abfss"))
_GLOBS = frozenset(("s3", "gs", "az", "hf", "file"))  # in which ? stands for any character


def without_passwords(text: str) -> str:
    """The text with *** in place of the user, the password and the query of each URL in it. A user alone stays where it is a name,
    as in ssh://git@host: for https it is often a token.

    >>> without_passwords("fatal: 'https://user:p@ss@host:8443/x.git' not found")
    "fatal: 'https://***@host:8443/x.git' not found"
    >>> without_passwords("https://TOKEN@host/x?private_token=TOKEN, s3://bucket/part-?.jsonl")
    'https://***@host/x?***, s3://bucket/part-?.jsonl'
    >>> without_passwords('["http://host:80","a@b"] ssh://git@host:22/x http://host:80/a@b https://$USER:$WORD@host')
    '["http://host:80","a@b"] ssh://git@host:22/x http://host:80/a@b https://$USER:$WORD@host'
    """
    return _QUERY.sub(_without_query, _USER.sub(_without_user, text))


def _without_user(url: re.Match[str]) -> str:
    if url["password"] is None and _scheme(url) in _USERS_ARE_NAMES:
        return url[0]
    return f"{url['slashes']}***@"


def _without_query(url: re.Match[str]) -> str:
    query = url["query"]
    if query is None or (not _WITH_A_NAME.search(query) and (query[0] == "#" or _scheme(url) in _GLOBS)):
        return url[0]
    return f"{url[0].removesuffix(query)}{query[0]}***"


def _scheme(url: re.Match[str]) -> str:
    """The scheme, which stands before the match: a regex that began with it would look for it at every letter of a text."""
    before = _SCHEME.search(url.string, max(0, url.start() - _SCHEME_MAX), url.start())
    return before[0].lower() if before else ""
