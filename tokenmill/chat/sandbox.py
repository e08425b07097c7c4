"""jinja2's sandbox as transformers has it, without clock and chance, and with limits on what an expression may make."""

import functools
import json
import re
from collections.abc import Callable, Collection, ItemsView, KeysView, ValuesView
from types import BuiltinMethodType, MethodType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import jinja2.utils

BEGIN, END = "_generation_begin", "_generation_end"
"""The variables that the tag `{% generation %}` writes in front of its body and behind it."""

_ITEMS_MAX = 10_000_000  # characters or entries that `*` may make
_BITS_MAX = 10_000  # of a number that `*` or `**` makes
_WIDTH_MAX = 100_000
_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(?:\*|\d{6}|\d*\.(?:\*|\d{6}))")
_WIDE_FORMAT = re.compile(r":[^}]*(?:\d{6}|\{)")
_WITH_WIDTH = ("center", "ljust", "rjust", "zfill", "expandtabs")
_METHODS = (BuiltinMethodType, MethodType)
_PLAIN = (str, int, float, bool, type(None), jinja2.Undefined)


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """jinja2's sandbox, which asks only once whether an attribute of a type is safe: that took half of the time to render."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._known_safe: dict[tuple[type, str], bool] = {}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read the attribute. jinja2's answer depends on the type and the name alone."""
        key = type(obj), attr
        safe = self._known_safe.get(key)
        if safe is None:
            safe = self._known_safe[key] = super().is_safe_attribute(obj, attr, value)
        return safe

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The result of the operator. Raises SecurityError for one that would be too large."""
        if operator == "%":
            if isinstance(left, str):
                _check_format(_WIDE_PERCENT, left)
        elif isinstance(left, int) and isinstance(right, int):
            n_bits, other = left.bit_length(), right.bit_length()
            if (n_bits * abs(right) if operator == "**" else n_bits + other) > _BITS_MAX:
                raise jinja2.exceptions.SecurityError(f"the result of {operator} is too large a number")
        elif operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(one, Collection) and len(one) * times > _ITEMS_MAX:
                    raise jinja2.exceptions.SecurityError(
                        f"{len(one):,} characters or entries * {times:,} are more than {_ITEMS_MAX:,}"
                    )
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """The method `format` of a string in the sandbox; None for anything else."""
        if not isinstance(value, _METHODS):
            return None  # jinja2 would say so itself; this spares the call, since most values are no methods
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _check_format(_WIDE_FORMAT, str(value.__self__))
        return wrapped

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """What the call of an object returns. Raises SecurityError for a string that would be too wide."""
        if isinstance(__obj, BuiltinMethodType) and __obj.__name__ in _WITH_WIDTH:
            _check_widths(__obj.__name__, *args, *kwargs.values())
        return super().call(__context, __obj, *args, **kwargs)


def sandbox() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """The environment that chat templates are compiled in."""
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, finalize=_stable, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    for name in ("batch", "center", "indent", "slice", "tojson"):
        environment.filters[name] = _limited(name, environment.filters[name])
    as_percent = environment.filters["format"]
    environment.filters["format"] = lambda value, *args, **kwargs: as_percent(
        _check_format(_WIDE_PERCENT, str(value)), *args, **kwargs
    )
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["namespace"] = _Namespace
    del environment.globals["lipsum"], environment.filters["random"]
    return environment


def _limited(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(filter)
    def limited(*args: Any, **kwargs: Any) -> Any:
        _check_widths(name, *args, *kwargs.values())
        return filter(*args, **kwargs)

    return limited


def _check_widths(name: str, *values: Any) -> None:
    for value in values:
        if isinstance(value, int) and value > _WIDTH_MAX:
            raise jinja2.exceptions.SecurityError(f"{name}: {value:,} is more than {_WIDTH_MAX:,}")


def _check_format(pattern: re.Pattern[str], text: str) -> str:
    if found := pattern.search(text):
        raise jinja2.exceptions.SecurityError(
            f"a format may have a width of up to 5 digits, written out; found {found[0]!r:.40}"
        )
    return text


def _stable(value: Any) -> Any:
    """The value, if its text is the same in each run: a method or a generator has its address in memory in it."""
    _check_stable(value)
    return value


def _check_stable(value: Any) -> None:
    if isinstance(value, _PLAIN):
        return
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | KeysView | ValuesView | ItemsView):
        for one in value:
            _check_stable(one)
    elif callable(value) or " at 0x" in str(value):
        raise TypeError(
            f"it writes an object of the type {type(value).__name__}, which has no text of its own. Write a key as "
            "message['items'], call a method, or put `| list` behind a filter"
        )


class _Generation(jinja2.ext.Extension):
    """The tag `{% generation %}`: its body, in a scope of its own, between two marks that each rendering chooses."""

    tags = {"generation"}  # noqa: RUF012 — as jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """The nodes for the tag, up to `{% endgeneration %}`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        marks = [jinja2.nodes.Output([jinja2.nodes.Name(name, "load")], lineno=line) for name in (BEGIN, END)]
        return jinja2.nodes.Scope([marks[0], *body, marks[1]], lineno=line)


class _Namespace(jinja2.utils.Namespace):
    """jinja2's namespace without names that begin with an underscore, which lead out of the sandbox."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        values = dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        jinja2.utils.Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not have the attribute {name!r}")


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
