"""The keys of params.yaml that make conversations of rows: what they allow, and how named sources take them over."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tests.conftest import REPOSITORY
from tokenmill.config.conversation_template import parse_part
from tokenmill.config.load_params import load_params
from tokenmill.config.params import Params
from tokenmill.config.sources import Conversations, Reading
from tokenmill.errors import ParamsError

KEYS = ("messages_column", "tools_column", "template")
ALPACA = {"user": ["{instruction}", "Input:\n{input}"], "assistant": "{output}"}
OF_ALPACA = Conversations(None, None, (("user", ("{instruction}", "Input:\n{input}")), ("assistant", ("{output}",))))


def params(folder: Path, sources: dict[str, Any] | None = None, **source: Any) -> Params:
    yaml = YAML(typ="safe", pure=True)
    found = yaml.load((REPOSITORY / "params.yaml").read_text(encoding="utf-8"))
    found["source"] |= source
    found["sources"] = sources or {}
    if source.keys() & set(KEYS) or any(one.keys() & set(KEYS) for one in found["sources"].values()):
        found["encode"] |= {"end_of_document": None, "chat": {"template": "chatml"}}
    with (folder / "params.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(found, file)
    return load_params(folder / "params.yaml")


def of_sources(found: Params) -> dict[str | None, Conversations | None]:
    return {one.name: one.reading.conversations for one in found.document_sources()}


def test_without_them_documents_are_texts(tmp_path: Path) -> None:
    assert of_sources(params(tmp_path)) == {None: None}
    assert params(tmp_path).source.conversations is None


def test_a_column_of_messages_or_a_template_makes_conversations(tmp_path: Path) -> None:
    assert of_sources(params(tmp_path, messages_column="m", tools_column="t")) == {None: Conversations("m", "t", None)}
    assert of_sources(params(tmp_path, template=ALPACA)) == {None: OF_ALPACA}


def test_the_messages_of_a_template_have_one_order_whatever_that_of_the_file(tmp_path: Path) -> None:
    template = '{assistant: "{a}", developer: "{d}", user: "{u}", system: "{s}"}'
    (tmp_path / "params.yaml").write_text(
        f"source: {{template: {template}}}\nencode: {{chat: {{template: chatml}}, end_of_document: null}}\n",
        encoding="utf-8",
    )
    found = load_params(tmp_path / "params.yaml").source.conversations
    assert found is not None and found.template is not None
    assert [role for role, _ in found.template] == ["system", "developer", "user", "assistant"]


def test_a_named_source_has_its_own_or_those_of_source(tmp_path: Path) -> None:
    sources = {
        "chat": {"glob": "a/*"},
        "agents": {"glob": "b/*", "tools_column": "functions"},
        "alpaca": {"glob": "c/*", "template": ALPACA},
        "shares": {"glob": "d/*", "messages_column": "conversations", "template": None},
    }
    assert of_sources(params(tmp_path, sources, messages_column="messages", tools_column="tools")) == {
        "chat": Conversations("messages", "tools", None),
        "agents": Conversations("messages", "functions", None),
        "alpaca": OF_ALPACA,
        "shares": Conversations("conversations", "tools", None),
    }
    assert of_sources(params(tmp_path, sources | {"agents": {"glob": "b/*"}}, template=ALPACA)) == {
        "chat": OF_ALPACA,
        "agents": OF_ALPACA,
        "alpaca": OF_ALPACA,
        "shares": Conversations("conversations", None, None),
    }


def test_they_are_part_of_a_units_key_only_where_documents_are_conversations() -> None:
    texts = Reading("text", "id")
    assert texts.as_key() == {"text": "text", "id": "id", "separator": None}
    chat = Reading("text", "id", None, OF_ALPACA)
    assert chat.as_key() == texts.as_key() | {
        "conversations": {"column": None, "tools_column": None, "template": OF_ALPACA.template}
    }


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "both": (
        {"messages_column": "m", "template": ALPACA},
        "source.template: found together with messages_column 'm'; allowed: only one of the two",
    ),
    "tools alone": (
        {"tools_column": "t"},
        "source.tools_column: found 't' without messages_column; allowed: with messages_column or pair, or null",
    ),
    "tools of a template": ({"tools_column": "t", "template": ALPACA}, "source.tools_column: found 't' without"),
    "tools of a named source": (
        {"sources": {"a": {"glob": "a/*", "tools_column": "t"}}},
        "sources: found tools_column 't' for a without messages_column",
    ),
    "both of a named source": (
        {"sources": {"a": {"glob": "a/*", "messages_column": "m", "template": ALPACA}}},
        "sources.a.template: found together with messages_column 'm'",
    ),
    "an unknown role": ({"template": {"bot": "{x}"}}, "source.template.bot: found 'bot'; allowed: 'system'"),
    "no role": ({"template": {}}, "source.template: found {}; allowed: 1 or more of them"),
    "no column": ({"template": {"user": "Hi"}}, "source.template: found no column; allowed: parts with columns in"),
    "no part": ({"template": {"user": []}}, "source.template.user: found []; allowed: a text, or a list of texts"),
    "an empty part": ({"template": {"user": ["{x}", ""]}}, "source.template.user: found ['{x}', '']; allowed: a text"),
    "null": ({"template": {"user": None}}, "source.template.user: found null; allowed: a text, or a list of texts"),
    "an open brace": (
        {"template": {"user": "{x} {y"}},
        "source.template.user: found '{x} {y' with a single { at character 4; allowed: a column in braces, like {input}, and "
        "{{ or }} for a brace itself",
    ),
    "an empty name": ({"template": {"user": "{x}{}"}}, "with a single { at character 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_names_key_found_and_allowed(tmp_path: Path, case: str) -> None:
    values, expected = WRONG[case]
    with pytest.raises(ParamsError) as error:
        params(tmp_path, **values)
    assert expected in str(error.value)


def with_variables(folder: Path, variables: str) -> Params:
    chat = f"{{template: chatml, variables: {variables}}}"
    text = f"source: {{messages_column: m}}\nencode: {{end_of_document: null, chat: {chat}}}\n"
    (folder / "params.yaml").write_text(text, encoding="utf-8")
    return load_params(folder / "params.yaml")


def test_variables_are_plain_values(tmp_path: Path) -> None:
    chat = with_variables(tmp_path, "{a: x, b: true, c: 3, d: 1.5, e: null}").encode.chat
    assert chat is not None
    assert chat.variables == {"a": "x", "b": True, "c": 3, "d": 1.5, "e": None}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        *(
            (f"{{{name}: 1}}", f"{name}: found '{name}'; allowed: other names, since DVC")
            for name in ("size", "nfiles")
        ),
        *(
            (
                f"{{{name}: 1}}",
                f"{name}: found '{name}'; allowed: other names, since each conversation gives the template",
            )
            for name in ("messages", "tools", "documents", "add_generation_prompt")
        ),
        ("{x: .inf}", "x: found inf; allowed: a text, a finite number, true, false or null."),
        ("{x: .nan}", "x: found nan; allowed: a text, a finite number, true, false or null."),
        ("{x: [1]}", "x: found [1]; allowed: a text, a finite number, true, false or null."),
        ("{'a b': 1}", "a b: found 'a b'; allowed: what the regex "),
    ],
)
def test_a_variable_that_would_be_overlooked_or_lost_is_refused(tmp_path: Path, variables: str, expected: str) -> None:
    with pytest.raises(ParamsError) as error:
        with_variables(tmp_path, variables)
    (line,) = str(error.value).splitlines()
    assert f"encode.chat.variables.{expected}" in line


@given(
    st.lists(st.tuples(st.text("a{} %", max_size=4), st.text("b :.", min_size=1, max_size=3))),
    st.text("{}", max_size=3),
)
def test_parts_of_any_texts_and_columns_are_read_as_they_were_written(pieces: list[tuple[str, str]], end: str) -> None:
    def escaped(text: str) -> str:
        return text.replace("{", "{{").replace("}", "}}")

    found = parse_part("".join(f"{escaped(text)}{{{column}}}" for text, column in pieces) + escaped(end))
    assert found.columns == tuple(column for _, column in pieces)
    assert found.texts == (*(text for text, _ in pieces), end)
