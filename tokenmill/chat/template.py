"""Renders conversations by a chat template, in jinja2's sandbox as transformers does, and finds what an assistant generates."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import jinja2.utils

from tokenmill.errors import TemplateError

_BEGIN, _END = "_generation_begin", "_generation_end"
_TOKEN_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
RENDER_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template may raise while it renders."""


class Regions(NamedTuple):
    """A rendered text without marks, and the ranges of its characters that the template says an assistant generates."""

    text: str
    generated: list[tuple[int, int]]


class ChatTemplate:
    """A compiled template. It knows no clock and no chance: `strftime_now`, `lipsum` and the filter `random` are not defined."""

    def __init__(self, source: str, variables: Mapping[str, Any], place: str) -> None:
        """Raises TemplateError, whose message begins with `place`, for a template that does not compile or needs a token, like
        bos_token, whose text the variables lack."""
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"{place}: the chat template is no valid Jinja at line {error.lineno}: {(error.message or '').rstrip('.')}. Correct that line."
            ) from None
        except RecursionError:
            raise TemplateError(f"{place}: the chat template is too long or nested too deeply. Simplify it.") from None
        self._template.globals = dict(
            environment.globals
        )  # jinja2's ChainMap of them is copied for each rendering, slowly
        names = jinja2.meta.find_undeclared_variables(tree)
        self.has_generation: bool = _BEGIN in names
        self.token_names: list[str] = [name for name in _TOKEN_NAMES if name in names]
        if missing := [name for name in self.token_names if not isinstance(variables.get(name), str)]:
            raise TemplateError(
                f"{place}: the chat template writes {missing[0]}, whose text is not known. Give it in the template's variables, "
                f"or in tokenizer_config.json."
            )
        self.words: set[str] = {node.attr for node in tree.find_all(jinja2.nodes.Getattr)}
        self.words |= {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
        self._variables = dict(variables)

    def marked(
        self, messages: Sequence[Any], tools: Sequence[Any] | None, marks: tuple[str, str], prompt: bool = False
    ) -> str:
        """The rendered text, with the first of two marks where a generated region begins and the second where it ends.

        `prompt`: the variable add_generation_prompt. Raises one of RENDER_ERRORS.
        """
        return self._template.render(
            self._variables,
            messages=messages,
            tools=tools,
            documents=None,
            add_generation_prompt=prompt,
            **{_BEGIN: marks[0], _END: marks[1]},
        )


def regions(marked: str, marks: tuple[str, str]) -> Regions:
    """The text of `ChatTemplate.marked` without its marks, and the regions that they enclose.

    >>> regions("a(bc)d(e)", ("(", ")"))
    Regions(text='abcde', generated=[(1, 3), (4, 5)])
    """
    begin, end = marks
    parts: list[str] = []
    generated = []
    opened: list[int] = []
    at = 0
    for i, part in enumerate(marked.split(begin)):
        if i:
            opened.append(at)
        for j, text in enumerate(part.split(end)):
            if j:
                generated.append((opened.pop(), at))
            parts.append(text)
            at += len(text)
    return Regions("".join(parts), sorted(generated))


class _Generation(jinja2.ext.Extension):
    """The tag `{% generation %}`: its body, in a scope of its own, between two marks that each rendering chooses."""

    tags = {"generation"}  # noqa: RUF012 — as jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """The nodes for the tag, up to `{% endgeneration %}`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        marks = [jinja2.nodes.Output([jinja2.nodes.Name(name, "load")], lineno=line) for name in (_BEGIN, _END)]
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


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """jinja2's sandbox, which asks only once whether an attribute of a type is safe: that took half of the time to render."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read the attribute. jinja2's answer depends on the type and the name alone."""
        known = self.__dict__.setdefault("_known_safe", {})
        key = type(obj), attr
        safe = known.get(key)
        if safe is None:
            safe = known[key] = super().is_safe_attribute(obj, attr, value)
        return bool(safe)


def _environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["namespace"] = _Namespace
    del environment.globals["lipsum"], environment.filters["random"]
    return environment
