"""Finds added tokens of a tokenizer that mark turns without being special."""

from collections.abc import Iterable

from tokenmill.tokenizer.model import AddedToken

_ROLES = ("system", "developer", "user", "assistant", "tool")
_BRACKETS = (("<", ">"), ("[", "]"))


def turn_tokens(added: Iterable[AddedToken], written: str) -> frozenset[str]:
    """The added tokens in angle or square brackets that are not special, and that a template writes.

    Pairs of tags like <think> and </think> do not count, because messages may contain them, and models read them as tokens.
    `written`: the text of the template and of its variables. A template may also write a token around a role, as in `'<|' +
    message.role + '|>'`.

    >>> added = [AddedToken(i, text, False, True) for i, text in enumerate(["<|user|>", "<|end|>", "<think>", "</think>"])]
    >>> sorted(turn_tokens(added, "{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}<think>"))
    ['<|end|>', '<|user|>']
    """
    texts = dict.fromkeys(token.text for token in added if not token.special)
    tags = {text for one in texts if one.startswith("</") for text in (one, "<" + one[2:])}
    paired = {tag for tag in tags if tag.replace("</", "<") in texts and "</" + tag.replace("</", "<")[1:] in texts}
    return frozenset(
        text
        for text in texts
        if any(text.startswith(opening) and text.endswith(closing) for opening, closing in _BRACKETS)
        and text not in paired
        and is_written(text, written)
    )


def is_written(text: str, written: str) -> bool:
    """Whether a template writes a token, perhaps around a role. `written`: the text of the template and of its variables."""
    return text in written or any(
        role in text and all(part in written for part in text.split(role, 1)) for role in _ROLES
    )
