"""Makes a conversation from a row: from messages of either shape, or by a template over several columns.

The shapes are that of OpenAI (role, content) and that of ShareGPT (from, value).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tokenmill.config.conversation_template import ROLES, TemplatePart, parse_part
from tokenmill.config.sources import Column

_ROLE_OF_SHAREGPT = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
}
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""The keys for an assistant's reasoning in datasets. Canonical JSON uses the first one."""
_LEVELS_MAX = 100
"""The allowed depth of nested lists and objects in a message or tool, including itself. It is fixed because Python's own limit
depends on the depth of the call stack."""
_KINDS = {str: "a text", bool: "a bool", int: "an int", float: "a float", list: "a list", dict: "an object"}

_encode = msgspec.json.Encoder().encode  # not ASCII-escaped, without white space, keys in their order


class CanonicalConversation(NamedTuple):
    """`json`: its canonical JSON, {"messages":[...],"tools":[...]} in UTF-8, without `tools` where there are none. `text`: the
    contents of its messages, joined by line ends."""

    json: bytes
    text: str


class ConversationError(ValueError):
    """Raised if a row makes no conversation. The text says why, and names the message to blame."""


class Maker(NamedTuple):
    """Makes conversations of rows. `columns`: those whose values it takes, in order. `make`: gives the conversation of such values,
    or raises ConversationError."""

    columns: tuple[Column, ...]
    make: Callable[[Sequence[Any]], CanonicalConversation]


def of_messages(messages: Any, tools: Any) -> CanonicalConversation:
    """Makes a conversation from messages and tools, each a list or the JSON text of a list; None: no tools. Keys of a message with
    the value null are removed; nested nulls, and nulls in tools, stay.

    Raises ConversationError.

    >>> of_messages([{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}], None).json
    b'{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]}'
    """
    message_list = _list(messages, "messages")
    if not message_list:
        raise ConversationError("expected messages; found an empty list")
    texts: list[str] = []
    whole: dict[str, Any] = {"messages": [_message(i, message, texts) for i, message in enumerate(message_list)]}
    if tools is not None and (tool_list := _list(tools, "tools")):
        for i, tool in enumerate(tool_list):
            if not isinstance(tool, dict):
                raise ConversationError(f"tool {i}: expected an object; found {_kind(tool)}")
            _check_json(tool, f"tool {i}")
        whole["tools"] = tool_list
    return CanonicalConversation(_encode(whole), "\n".join(texts))


def _list(value: Any, what: str) -> list[Any]:
    if isinstance(value, str | bytes):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConversationError(
                f"{what}: expected the JSON text of a list; found a text that is not JSON: {error}"
            ) from None
        except RecursionError:
            raise _too_deep(what) from None
    if not isinstance(value, list):
        raise ConversationError(f"{what}: expected a list, or its JSON text; found {_kind(value)}")
    return value


def _message(i: int, value: Any, texts: list[str]) -> dict[str, Any]:
    """A message in canonical form. Its content goes to `texts`."""
    if isinstance(value, dict) and len(value) == 2:  # most messages have a role and a text alone
        role, content = value.get("role"), value.get("content")
        if isinstance(content, str) and isinstance(role, str) and role in ROLES:
            texts.append(content)
            return {"role": role, "content": content}
    if not isinstance(value, dict):
        raise ConversationError(f"message {i}: expected an object; found {_kind(value)}")
    _check_json(value, f"message {i}")
    message = {key: part for key, part in value.items() if part is not None}
    if "role" not in message and "from" in message:
        message = _of_sharegpt(i, message)
    if "role" not in message:
        keys = ", ".join(message) or "(none)"
        raise ConversationError(
            f"message {i}: expected the keys role and content, or from and value; found the keys {keys}"
        )
    role, calls = message.pop("role"), message.get("tool_calls")
    if not isinstance(role, str) or role not in ROLES:
        raise ConversationError(f"message {i}: role: expected one of {', '.join(ROLES)}; found {_shown(role)}")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise ConversationError(f"message {i}: tool_calls: expected a list of objects; found {_kind(calls)}")
    if "content" in message:
        content = _content(i, message.pop("content"))
        texts.append(content)
        message = {"role": role, "content": content, **message}
    elif calls:
        message = {"role": role, **message}
    else:
        raise ConversationError(f"message {i}: content: expected a text, or tool_calls beside it; found none")
    if not message.keys().isdisjoint(_REASONING):
        message = _with_one_reasoning(i, message)
        texts.append(message[_REASONING[0]])
    return message


def _with_one_reasoning(i: int, message: dict[str, Any]) -> dict[str, Any]:
    """Renames the message's key of reasoning to the first of _REASONING, in its place."""
    keys = [key for key in message if key in _REASONING]
    for key in keys:
        if not isinstance(message[key], str):
            raise ConversationError(f"message {i}: {key}: expected a text; found {_kind(message[key])}")
        if message[key] != message[keys[0]]:
            raise ConversationError(f"message {i}: expected one reasoning; found different ones in {keys[0]} and {key}")
    renamed = {_REASONING[0] if key == keys[0] else key: value for key, value in message.items()}
    return {key: value for key, value in renamed.items() if key not in _REASONING[1:]}


def _of_sharegpt(i: int, message: dict[str, Any]) -> dict[str, Any]:
    speaker = message.pop("from")
    role = _ROLE_OF_SHAREGPT.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise ConversationError(
            f"message {i}: from: expected one of {', '.join(_ROLE_OF_SHAREGPT)}; found {_shown(speaker)}"
        )
    if "content" in message:
        raise ConversationError(f"message {i}: expected the key value beside from; found content")
    content = message.pop("value", None)
    if content is None and message.get("tool_calls"):
        return {"role": role, **message}
    if not isinstance(content, str):
        raise ConversationError(f"message {i}: value: expected a text; found {_kind(content)}")
    return {"role": role, "content": content, **message}


def _content(i: int, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ConversationError(f"message {i}: content: expected a text, or a list of texts; found {_kind(content)}")
    texts = []
    for j, one in enumerate(content):
        kind, text = (one.get("type"), one.get("text")) if isinstance(one, dict) else (None, None)
        if kind != "text" or not isinstance(text, str):
            found = f"the type {_shown(kind)}" if kind not in (None, "text") else _kind(one)
            raise ConversationError(
                f'message {i}: content {j}: expected {{"type": "text", "text": a text}}; found {found}'
            )
        texts.append(text)
    return "".join(texts)


def _check_json(value: Any, where: str, level: int = 1) -> None:
    """Raises ConversationError for a value that is nested too deep, or has a number that JSON lacks."""
    if isinstance(value, dict | list):
        if level > _LEVELS_MAX:
            raise _too_deep(where)
        for one in value.values() if isinstance(value, dict) else value:
            _check_json(one, where, level + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConversationError(f"{where}: expected numbers that JSON has; found {value}")


def _too_deep(where: str) -> ConversationError:
    return ConversationError(f"{where}: expected at most {_LEVELS_MAX} levels of lists and objects; found more")


def by_template(
    template: Sequence[tuple[str, Sequence[str]]],
) -> tuple[tuple[str, ...], Callable[[Sequence[Any]], CanonicalConversation]]:
    """The columns of a template, and a function that makes a conversation from their values."""
    parsed = [(role, [parse_part(part) for part in parts]) for role, parts in template]
    columns = tuple(dict.fromkeys(name for _, parts in parsed for part in parts for name in part.columns))
    forms = [(role, [_form(part, columns) for part in parts]) for role, parts in parsed]

    def make(values: Sequence[Any]) -> CanonicalConversation:
        if not any(values):
            raise ConversationError(f"expected a text in one of {', '.join(columns)}; found none")
        messages, texts = [], []
        for role, parts in forms:
            contents = []
            for form, indices in parts:
                column_texts = [values[k] or "" for k in indices]
                if not indices or any(column_texts):
                    contents.append(form % tuple(column_texts))
            if contents:
                content = "\n\n".join(contents)
                messages.append({"role": role, "content": content})
                texts.append(content)
        return CanonicalConversation(_encode({"messages": messages}), "\n".join(texts))

    return columns, make


def _form(part: TemplatePart, columns: Sequence[str]) -> tuple[str, list[int]]:
    """A part as a format string for the operator %, and the indexes of the columns that fill it."""
    form = "%s".join(text.replace("%", "%%") for text in part.texts)
    return form, [columns.index(name) for name in part.columns]


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    return f"{value!r:.60}" if isinstance(value, str) else _kind(value)
