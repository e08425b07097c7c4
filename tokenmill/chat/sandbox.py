"""jinja2's sandbox with the extensions of transformers, without clock and randomness."""

import json
import re
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from datetime import datetime
from types import BuiltinMethodType, MethodType
from typing import Any

import jinja2
import jinja2.compiler
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import jinja2.utils

BEGIN, END = "_generation_begin", "_generation_end"
"""The variables that the tag `{% generation %}` writes in front of its body and behind it."""

_SECONDS = re.compile(r"%[-_0^#]*\d*[EO]?s")
"""The directive of `strftime` for seconds since 1970, with the flags and the width that glibc allows."""
_METHODS = (BuiltinMethodType, MethodType)
_PLAIN = (str, int, float, bool, type(None), jinja2.Undefined)


class _RunsNothing(jinja2.compiler.CodeGenerator):
    """Compiles a template without running any of it; jinja2 would already evaluate seemingly constant parts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.optimizer = None

    def _output_child_to_const(self, node: Any, frame: Any, finalize: Any) -> str:
        if not isinstance(node, jinja2.nodes.TemplateData):
            raise jinja2.nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_EvalContextModifier(self, node: jinja2.nodes.EvalContextModifier, frame: Any) -> None:
        """The tag `{% autoescape %}`."""
        if not all(isinstance(option.value, jinja2.nodes.Const) for option in node.options):
            self.fail("autoescape takes true or false", node.lineno)
        super().visit_EvalContextModifier(node, frame)


class _Tracking(_RunsNothing, jinja2.meta.TrackingCodeGenerator):
    pass


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """jinja2's sandbox with a cache of which attributes of a type are safe, since these checks took half of the rendering time."""

    code_generator_class = _RunsNothing

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

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """The method `format` of a string in the sandbox; None for anything else."""
        if not isinstance(value, _METHODS):
            return None  # a shortcut, since most values are no methods
        return super().wrap_str_format(value)


def sandbox(day: str | None = None) -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """The environment that chat templates are compiled in. `day`: the ISO date for `strftime_now`; None: that is not defined."""
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, finalize=_stable, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["namespace"] = _Namespace
    if day is not None:
        environment.globals["strftime_now"] = _clock(day)
    del environment.globals["lipsum"], environment.filters["random"]
    return environment


def undeclared_names(environment: jinja2.Environment, tree: jinja2.nodes.Template) -> set[str]:
    """The variables that a template takes from outside, as `jinja2.meta.find_undeclared_variables` says."""
    tracking = _Tracking(environment)
    tracking.visit(tree)
    return tracking.undeclared_identifiers


def _stable(value: Any) -> Any:
    """The value, if its text is the same in each run; the texts of methods and generators contain memory addresses."""
    if type(value) is not str:  # a shortcut, since most values are
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
    """The tag `{% generation %}`: writes its body, in a scope of its own, between two marks that each rendering chooses."""

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


def _clock(day: str) -> Callable[[str], str]:
    """transformers' `strftime_now`, at the beginning of a day instead of now."""
    midnight = datetime.fromisoformat(day)

    def strftime_now(format: str) -> str:
        if _SECONDS.search(format.replace("%%", "")):
            raise ValueError("strftime_now: %s is another number in each time zone. Write %Y-%m-%d")
        return midnight.strftime(format)

    return strftime_now


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
