"""Passwords in URLs: they are refused where a URL is given, and cut out of what is said."""

from __future__ import annotations

import re

# A number at the end of an authority is a port, and $ begins a variable. A password may have a slash or an @ that should
# have been written as %2F or %40.
_USER_AND_PASSWORD = re.compile(r"""(?<=://)[^/\s:@\[]*:(?!\$|\d*(?:[/\s?#"')\],]|$))[^\s@]{,999}@(?:[^\s/@]*@)*""")


def has_password(text: str) -> bool:
    """Whether a text holds a URL with a password. A user alone, as in ssh://git@host/x, is no secret.

    >>> has_password("https://user:word@host/x.git"), has_password("ssh://git@host:22/x"), has_password("git@host:x")
    (True, False, False)
    >>> has_password('["http://host:80","a@b"] http://host:80?to=a@b https://$USER:$WORD@host')
    False
    """
    return _USER_AND_PASSWORD.search(text) is not None


def without_passwords(text: str) -> str:
    """The text with *** in place of the user and the password of each URL in it.

    >>> without_passwords("fatal: 'https://user:p@ss@host:8443/x.git' not found")
    "fatal: 'https://***@host:8443/x.git' not found"
    """
    return _USER_AND_PASSWORD.sub("***@", text)
