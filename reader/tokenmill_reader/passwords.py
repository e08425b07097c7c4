"""Passwords in URLs: they are cut out of what is said."""

from __future__ import annotations

import re

# A number at the end of an authority is a port, and $ begins a variable. A password may have a slash or an @ that should
# have been written as %2F or %40.
_USER_AND_PASSWORD = re.compile(r"""(?<=://)[^/\s:@\[]*:(?!\$|\d*(?:[/\s?#"')\],]|$))[^\s@]{,999}@(?:[^\s/@]*@)*""")


def without_passwords(text: str) -> str:
    """The text with *** in place of the user and the password of each URL in it. A user alone is no secret.

    >>> without_passwords("fatal: 'https://user:p@ss@host:8443/x.git' not found")
    "fatal: 'https://***@host:8443/x.git' not found"
    >>> without_passwords('["http://host:80","a@b"] ssh://git@host:22/x http://host:80?to=a@b https://$USER:$WORD@host')
    '["http://host:80","a@b"] ssh://git@host:22/x http://host:80?to=a@b https://$USER:$WORD@host'
    """
    return _USER_AND_PASSWORD.sub("***@", text)
