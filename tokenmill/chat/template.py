"""Renders conversations by a chat template, and finds the text that an assistant generates."""

import resource
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import jinja2.nodes

from tokenmill.chat.sandbox import BEGIN, END, sandbox, undeclared_names
from tokenmill.errors import TemplateError
from tokenmill.tokenizer.formats.named_tokens import NAMES
from tokenmill_reader.shown import size

_KEEPERS = (jinja2.nodes.AssignBlock, jinja2.nodes.CallBlock, jinja2.nodes.FilterBlock, jinja2.nodes.Macro)
_WRITERS = (jinja2.nodes.Output, jinja2.nodes.Add, jinja2.nodes.Concat, jinja2.nodes.CondExpr)
_RENDERED_MAX = 64_000_000
MEMORY_BYTES_MAX = 1_000_000_000
"""The memory limit of a rendering process."""
RENDER_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
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
    """A compiled template without clock or randomness: `lipsum` and the filter `random` are not defined, and `strftime_now` only
    with a day."""

    def __init__(self, source: str, variables: Mapping[str, Any], place: str, day: str | None = None) -> None:
        """`day`: the ISO date that `strftime_now` writes. Raises TemplateError, whose message begins with `place`, for a template
        that does not compile, or that writes a token like bos_token that the variables lack without testing for it."""
        self.place = place
        environment = sandbox(day)
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            words = str(error.message).rstrip(".")
            raise TemplateError(
                place, f"the chat template is not valid Jinja at line {error.lineno}: {words}.", "Correct that line."
            ) from None
        except (RecursionError, MemoryError):
            raise TemplateError(place, "the chat template is too long or nested too deeply.", "Simplify it.") from None
        except (SyntaxError, ValueError, OverflowError) as error:
            words = error.msg if isinstance(error, SyntaxError) else str(error)
            raise TemplateError(place, f"the chat template does not compile: {words}.", "Simplify it.") from None
        self._template.globals = dict(
            environment.globals
        )  # jinja2's ChainMap of them is copied for each rendering, slowly
        names = undeclared_names(environment, tree)
        self.has_generation: bool = BEGIN in names
        self.keeps_generation: bool = any(_has_generation(node) for node in tree.find_all(_KEEPERS))
        """Whether the template can read or change a generated region before writing it."""
        self._variables = {
            name: value for name, value in variables.items() if name not in NAMES or value is not None
        }  # transformers leaves missing tokens undefined
        self.token_names: list[str] = [name for name in NAMES if name in names and name in self._variables]
        unknown = [name for name in NAMES if name in names and name not in self._variables]
        if missing := [name for name in unknown if name not in _asked(tree)]:
            raise TemplateError(
                place,
                f"the chat template writes {missing[0]}, whose text is not known.",
                "Give it in the template's variables, or in tokenizer_config.json. If there is none, take "
                f"{missing[0]} out of the template, or write {{% if {missing[0]} %}} around it.",
            )
        self.words: set[str] = {node.attr for node in tree.find_all(jinja2.nodes.Getattr)}
        self.words |= {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
        self.looked_for: set[str] = set(_looked_for(tree, False))
        """The strings that the template compares with or hands to a filter or method, but not those that it only writes."""

    def marked(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        marks: tuple[str, str],
        prompt: bool = False,
        characters_max: int = _RENDERED_MAX,
    ) -> str:
        """The rendered text, with the first of two marks where a generated region begins and the second where it ends.

        `prompt`: the variable add_generation_prompt. Raises one of RENDER_ERRORS, for a text of more than `characters_max`, too.
        """
        pieces: list[str] = []
        n_left = characters_max
        for piece in self._template.generate(self._values(messages, tools, marks, prompt)):
            pieces.append(piece)
            n_left -= len(piece)
            if n_left < 0:
                raise ValueError(
                    f"it writes more than {characters_max:,} characters, which is too much for this conversation"
                )
        text = "".join(pieces)
        if not text.isascii():
            text.encode()  # a lone surrogate is no text
        return text

    def _values(
        self, messages: Sequence[Any], tools: Sequence[Any] | None, marks: tuple[str, str], prompt: bool
    ) -> dict[str, Any]:
        return {
            **self._variables,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": prompt,
            BEGIN: marks[0],
            END: marks[1],
        }

    def why(self, error: BaseException) -> str:
        """Says why the template refuses a conversation: the error, and its place."""
        words = str(error).rstrip(".") or type(error).__name__
        if isinstance(error, MemoryError):
            n_bytes, _ = resource.getrlimit(resource.RLIMIT_DATA)
            least = "there is" if n_bytes == resource.RLIM_INFINITY else size(n_bytes)
            words = f"it takes more memory than {least}"
        if isinstance(error, jinja2.UndefinedError) and "strftime_now" in words:
            words += " (a template may not ask the clock; give the day in encode.chat.date)"
        return f"{words:.300} ({self.place_of(error)})."

    def place_of(self, error: BaseException) -> str:
        """Names the place of a template's error: the template, and the line if known."""
        line, trace = None, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<template>":
                line = trace.tb_lineno
            trace = trace.tb_next
        return self._named(line)

    def place_at(self, messages: Sequence[Any], tools: Sequence[Any] | None, position: int) -> str:
        """Names the place that writes the character `position` of the rendered text: the template, and the line if known."""
        pieces = self._template.generate(self._values(messages, tools, ("", ""), False))
        for piece in pieces:
            position -= len(piece)
            if position < 0:
                frame = pieces.gi_yieldfrom.gi_frame  # type: ignore[attr-defined]
                return self._named(self._template.get_corresponding_lineno(frame.f_lineno))
        return self._named(None)

    def _named(self, line: int | None) -> str:
        return self.place if line is None else f"{self.place}, line {line}"


def _asked(tree: jinja2.nodes.Template) -> set[str]:
    """The names that a template tests, as in `{% if bos_token %}`, and so can do without."""
    tested: list[jinja2.nodes.Node] = [node.test for node in tree.find_all(jinja2.nodes.If)]
    tested += [node.test for node in tree.find_all(jinja2.nodes.CondExpr)]
    tested += tree.find_all(
        (jinja2.nodes.Test, jinja2.nodes.Compare, jinja2.nodes.And, jinja2.nodes.Or, jinja2.nodes.Not)
    )
    tested += [node for node in tree.find_all(jinja2.nodes.Filter) if node.name in ("default", "d")]
    names = [name for node in tested for name in (node, *node.find_all(jinja2.nodes.Name))]
    return {node.name for node in names if isinstance(node, jinja2.nodes.Name)}


def _looked_for(node: jinja2.nodes.Node, is_written: bool) -> Iterator[str]:
    if isinstance(node, jinja2.nodes.Const) and isinstance(node.value, str) and not is_written:
        yield node.value
    for child in node.iter_child_nodes(exclude=("arg",) if isinstance(node, jinja2.nodes.Getitem) else None):
        yield from _looked_for(child, isinstance(node, _WRITERS))


def _has_generation(node: jinja2.nodes.Node) -> bool:
    return any(name.name == BEGIN for name in node.find_all(jinja2.nodes.Name))


def regions(marked: str, marks: tuple[str, str]) -> Regions:
    """The text of `ChatTemplate.marked` without its marks, and the regions that they enclose. Raises ValueError for a mark
    without the other one.

    >>> regions("a(bc)d(e)", ("(", ")"))
    Regions(text='abcde', generated=[(1, 3), (4, 5)])
    """
    begin, end = marks
    parts: list[str] = []
    generated = []
    opened: list[int] = []
    position = 0
    for i, part in enumerate(marked.split(begin)):
        if i:
            opened.append(position)
        for j, text in enumerate(part.split(end)):
            if j:
                if not opened:
                    raise ValueError("it writes the end of a generated region without its beginning")
                generated.append((opened.pop(), position))
            parts.append(text)
            position += len(text)
    if opened:
        raise ValueError("it writes the beginning of a generated region without its end")
    return Regions("".join(parts), sorted(generated))
