"""Files of every format give the same conversations, whole or cut into units, with ids, rows and bad documents."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.shards import conversation_table, shard, write_ipc, zstd
from tokenmill.config.sources import Conversations, PairColumns, Reading
from tokenmill.corpus.bad_documents import BadDocument, ColumnError
from tokenmill.corpus.conversations import of_messages
from tokenmill.corpus.formats import read_columns
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.corpus.page_sizes import rows_within
from tokenmill.corpus.pairs import of_pair
from tokenmill.corpus.reader import Batch, find_shards, read_batches
from tokenmill.corpus.text_digests import text_digests
from tokenmill.corpus.units import cut
from tokenmill.corpus.value_sizes import check_values
from tokenmill.errors import CorpusError, DamagedError
from tokenmill.storage.file_facts import Digests

Rows = list[dict[str, Any]]
MESSAGES = Conversations("messages", "tools", None)
ALPACA = Conversations(None, None, (("user", ("{instruction}", "Input:\n{input}")), ("assistant", ("{output}",))))
# The keys are in alphabetical order where rows become structs, because pyarrow 20 puts them so.
CALLS = [{"function": {"arguments": '{"x": "é"}', "name": "f"}, "id": "1"}]
ROWS: Rows = [
    {
        "id": "a",
        "messages": [{"role": "user", "content": "Hi 東京 🙂"}, {"role": "assistant", "content": 'a\n"b"\x00'}],
    },
    {
        "id": "b",
        "messages": [
            {"role": "user", "content": "x", "name": "me"},
            {"role": "assistant", "tool_calls": CALLS},
            {"role": "tool", "content": ""},
        ],
        "tools": [{"function": {"name": "f"}, "type": "function"}],
    },
    {"id": "c", "messages": [{"role": "system", "content": ""}], "tools": None},
]


def lines(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n\n" for row in rows)


def as_text(rows: Rows) -> Rows:
    return [
        row | {name: json.dumps(row[name]) for name in ("messages", "tools") if row.get(name) is not None}
        for row in rows
    ]


WRITERS: dict[str, Callable[[Path, Rows], object]] = {
    "a.jsonl": lambda path, rows: path.write_bytes(lines(rows)),
    "a.jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(lines(rows))),
    "a.jsonl.zst": lambda path, rows: path.write_bytes(zstd(lines(rows))),
    "text.jsonl": lambda path, rows: path.write_bytes(lines(as_text(rows))),
    "a.parquet": lambda path, rows: pq.write_table(conversation_table(rows), path, row_group_size=2),
    "text.parquet": lambda path, rows: pq.write_table(conversation_table(as_text(rows)), path),
    "file.arrow": lambda path, rows: write_ipc(path, conversation_table(rows), pa.ipc.new_file),
    "stream.arrow": lambda path, rows: write_ipc(path, conversation_table(rows), pa.ipc.new_stream),
}


def read(
    path: Path, conversations: Conversations = MESSAGES, id_column: str | None = "id", **options: Any
) -> list[Batch]:
    limits = options.pop("limits", UNBOUNDED)
    limits = replace(limits, batch_bytes=options.pop("batch_bytes", limits.batch_bytes))
    return list(read_batches(shard(path), Reading("text", id_column, None, conversations), limits=limits, **options))


def found_in(batches: list[Batch]) -> list[tuple[str, str, str]]:
    """Id, canonical JSON and text of each conversation."""
    found: list[tuple[str, str, str]] = []
    for batch in batches:
        assert batch.ids is not None and batch.messages is not None
        for array in (batch.texts, batch.messages):
            array.validate(full=True)
            assert array.type == pa.large_string() and array.null_count == 0
        assert batch.digested is batch.messages
        found += zip(batch.ids.to_pylist(), batch.messages.to_pylist(), batch.texts.to_pylist(), strict=True)
    return found


def expected_of(rows: Rows) -> list[tuple[str, str, str]]:
    made = [of_messages(row["messages"], row.get("tools")) for row in rows]
    return [(row["id"], one.json.decode(), one.text) for row, one in zip(rows, made, strict=True)]


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_conversations(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    assert found_in(read(tmp_path / name)) == expected_of(ROWS)
    assert read(tmp_path / name, id_column=None)[0].ids is None


CALL = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": st.text(max_size=3), "arguments": st.text(max_size=4)})},
    optional={"id": st.text(max_size=2), "index": st.integers(-(2**63), 2**63 - 1)},
)
OPENAI = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": st.text(max_size=5)},
    optional={"name": st.text(max_size=2), "weight": st.sampled_from([0, 1]), "reasoning_content": st.text(max_size=3)},
)
ANSWER = st.fixed_dictionaries(
    {"role": st.just("assistant"), "tool_calls": st.lists(CALL, min_size=1, max_size=2)},
)
PIECE = st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=3)})
OF_PIECES = st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(PIECE, max_size=3)})
SHAREGPT = st.fixed_dictionaries(
    {"from": st.sampled_from(["human", "gpt", "system", "function_call", "observation"]), "value": st.text(max_size=5)}
)
CONVERSATIONS = st.sampled_from([OPENAI | ANSWER, OF_PIECES, SHAREGPT]).flatmap(
    lambda message: st.lists(st.lists(message, min_size=1, max_size=4), min_size=1, max_size=4)
)


def in_schema_order(value: Any, kind: pa.DataType) -> Any:
    """The value with keys in the order of a table's fields, as a table gives it back."""
    if isinstance(value, dict):
        return {field.name: in_schema_order(value[field.name], field.type) for field in kind if field.name in value}
    return [in_schema_order(one, kind.value_type) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["a.jsonl", "text.parquet", "a.parquet", "file.arrow", "stream.arrow"])
@given(conversations=CONVERSATIONS, batch_bytes=st.integers(1, 400))
def test_any_conversations_come_back_equal_in_batches_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, name: str, conversations: list[Any], batch_bytes: int
) -> None:
    rows = [{"id": str(i), "messages": one} for i, one in enumerate(conversations)]
    path = tmp_path_factory.mktemp("any") / name
    WRITERS[name](path, rows)
    if name in ("a.parquet", "file.arrow", "stream.arrow"):
        kind = conversation_table(rows).schema.field("messages").type
        rows = [row | {"messages": in_schema_order(row["messages"], kind)} for row in rows]
    batches = read(path, batch_bytes=batch_bytes)
    assert found_in(batches) == expected_of(rows)
    assert all(pc.sum(pc.binary_length(b.digested)).as_py() <= batch_bytes or len(b.texts) == 1 for b in batches)
    assert sum(batch.file_bytes for batch in batches) == path.stat().st_size


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "file.arrow"])
def test_a_template_reads_its_columns_from_every_format(tmp_path: Path, name: str) -> None:
    rows = [
        {"id": 7, "instruction": "Add", "input": "1, 2", "output": "3", "source": "x"},
        {"id": 8, "instruction": "Greet", "input": None, "output": "Hi", "source": "y"},
    ]
    WRITERS[name](tmp_path / name, rows)
    assert found_in(read(tmp_path / name, ALPACA)) == [
        (
            "7",
            '{"messages":[{"role":"user","content":"Add\\n\\nInput:\\n1, 2"},{"role":"assistant","content":"3"}]}',
            "Add\n\nInput:\n1, 2\n3",
        ),
        ("8", '{"messages":[{"role":"user","content":"Greet"},{"role":"assistant","content":"Hi"}]}', "Greet\nHi"),
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_column_of_the_template_may_be_the_id(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, [{"instruction": "Add", "input": "", "output": "3"}])
    assert [one for one, _, _ in found_in(read(tmp_path / name, ALPACA, "instruction"))] == ["Add"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.struct([("role", pa.large_string()), ("content", pa.string_view())])),
        pa.list_(pa.struct([("role", pa.dictionary(pa.int8(), pa.string())), ("content", pa.string())])),
        pa.list_(pa.map_(pa.string(), pa.string())),
        pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]), 1),
    ],
)
def test_every_type_of_list_and_string_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    message = {"role": "user", "content": "é"}
    value = list(message.items()) if pa.types.is_map(kind.value_type) else message
    write_ipc(tmp_path / "a.arrow", pa.table({"messages": pa.array([[value]], kind)}), pa.ipc.new_file)
    batch = read(tmp_path / "a.arrow", Conversations("messages", None, None), None)[0]
    assert batch.digested.to_pylist() == ['{"messages":[{"role":"user","content":"é"}]}']


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "file.arrow"])
def test_a_null_is_a_key_that_the_row_lacks_in_a_struct_and_a_value_in_json_and_in_maps(
    tmp_path: Path, name: str
) -> None:
    call = {"id": None, "function": {"arguments": {"city": "x", "unit": None}}}
    message = {"role": "assistant", "name": None, "tool_calls": [call]}
    unit: dict[str, str | None] = {"unit": None, "city": "x"}
    tool = {"type": None, "default": unit}
    arguments = pa.struct([("city", pa.string()), ("unit", pa.string())])
    calls = pa.list_(pa.struct([("id", pa.string()), ("function", pa.struct([("arguments", arguments)]))]))
    messages = pa.list_(pa.struct([("role", pa.string()), ("name", pa.string()), ("tool_calls", calls)]))
    tools = pa.list_(pa.struct([("type", pa.string()), ("default", pa.map_(pa.string(), pa.string()))]))
    columns = pa.table(
        {
            "messages": pa.array([[message]] * 2, messages),
            "tools": pa.array([[tool | {"default": [*unit.items()]}], None], tools),
        }
    )
    rows: Rows = [{"messages": [message], "tools": [tool]}, {"messages": [message]}]
    if name == "a.jsonl":
        (tmp_path / name).write_bytes(lines(rows))
        call_json = '{"id":null,"function":{"arguments":{"city":"x","unit":null}}}'
        tool_json = '{"type":null,"default":{"unit":null,"city":"x"}}'
    else:
        if name == "a.parquet":
            pq.write_table(columns, tmp_path / name)
        else:
            write_ipc(tmp_path / name, columns, pa.ipc.new_file)
        call_json = '{"function":{"arguments":{"city":"x"}}}'
        tool_json = '{"default":{"unit":null,"city":"x"}}'
    whole = f'{{"messages":[{{"role":"assistant","tool_calls":[{call_json}]}}]'
    found = read(tmp_path / name, id_column=None)[0]
    assert found.digested.to_pylist() == [f'{whole},"tools":[{tool_json}]}}', f"{whole}}}"]


BAD_ROWS: Rows = [
    ROWS[0],
    {"id": "x", "messages": [{"role": "bot", "content": "?"}]},
    {"id": "y", "messages": []},
    ROWS[2],
    {"id": "z", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]},
]
REASONS = {
    1: "message 0: role: expected one of system, developer, user, assistant, tool; found 'bot'.",
    2: "expected messages; found an empty list.",
    4: "message 1: content: expected a text, or tool_calls beside it; found none.",
}


@pytest.mark.parametrize("name", WRITERS)
def test_bad_conversations_are_left_out_with_their_rows_reasons_and_bytes(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, BAD_ROWS)
    bad: list[BadDocument] = []
    batches = read(tmp_path / name, on_bad=bad.append)
    assert found_in(batches) == expected_of([ROWS[0], ROWS[2]])
    assert [row for batch in batches for row in batch.rows().to_pylist()] == [0, 3]
    assert {one.row: one.reason for one in bad} == REASONS
    assert all(one.raw is not None and (b"bot" in one.raw) == (one.row == 1) for one in bad)
    with pytest.raises(CorpusError) as error:
        read(tmp_path / name)
    place, thing = ("line 3", "line") if ".jsonl" in name else ("row 1", "row")
    assert str(error.value) == f"{name}, {place}: {REASONS[1]} Correct the {thing}, or delete it."
    assert error.value.code == "TM201"


def test_a_null_id_and_text_that_is_no_utf8_are_bad_conversations_of_a_table(tmp_path: Path) -> None:
    raw = pa.array([b"x", b"\xe9t", b"y"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    roles = pa.array(["user"] * 3)
    messages = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), pa.StructArray.from_arrays([roles, texts], ["role", "content"])
    )
    rows = pa.table({"id": pa.array([None, "b", "c"], pa.string()), "messages": messages})
    write_ipc(tmp_path / "a.arrow", rows, pa.ipc.new_file)
    bad: list[BadDocument] = []
    found = read(tmp_path / "a.arrow", Conversations("messages", None, None), on_bad=bad.append)
    assert [one[0] for one in found_in(found)] == ["c"]
    assert [(one.row, one.reason) for one in bad] == [
        (0, "column 'id': expected a value; found null"),
        (1, "column 'messages': expected UTF-8; found 0xe9 at byte 0 of a text."),
    ]


def test_a_text_that_is_no_utf8_does_not_hide_that_another_lies_outside_of_its_buffer(tmp_path: Path) -> None:
    roles = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
    )
    outside = pa.array([0, 1 << 30, 2], pa.int32()).buffers()[1]
    contents = pa.Array.from_buffers(pa.string(), 2, [None, outside, pa.py_buffer(b"ab")])
    objects = pa.StructArray.from_arrays([roles, contents], ["role", "content"])
    rows = pa.table({"id": ["a", "b"], "messages": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), objects)})
    write_ipc(tmp_path / "a.arrow", rows, pa.ipc.new_file)
    with pytest.raises(CorpusError, match="1073741824 > 2"):
        read(tmp_path / "a.arrow", Conversations("messages", None, None))


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[{"a": "x"}]], pa.list_(pa.struct([("a", pa.string_view())]))),
        pa.array([[{"a": "x"}]], pa.large_list(pa.struct([("a", pa.large_string())]))),
        pa.array([[["x"], None]], pa.list_view(pa.list_view(pa.string()))),
        pa.array([["x"]], pa.large_list_view(pa.string())),
        pa.array([["x", "y"]], pa.list_(pa.string(), 2)),
        pa.array([[("a", "x")]], pa.map_(pa.string(), pa.string())),
        pa.array([["x", "x"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.array([None, [None]], pa.list_(pa.null())),
        pa.array([1.5]),
    ],
    ids=lambda array: str(array.type),
)
def test_right_values_of_each_type_pass(array: pa.Array) -> None:
    check_values(array)
    check_values(array.slice(0, 0))


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow"])
def test_a_bad_conversation_with_a_bad_id_is_bad_once(tmp_path: Path, name: str) -> None:
    ids = pa.array([b"a", b"\xe9", None], pa.binary())
    rows = pa.table({"id": ids, "messages": ['[{"role": "user", "content": "x"}]', "[]", "[]"]})
    if name == "a.parquet":
        pq.write_table(rows, tmp_path / name)
    else:
        write_ipc(tmp_path / name, rows, pa.ipc.new_file)
    bad: list[BadDocument] = []
    found = read(tmp_path / name, Conversations("messages", None, None), on_bad=bad.append)
    assert [one[0] for one in found_in(found)] == ["a"]
    reason = "expected messages; found an empty list."
    assert [(one.row, one.reason, one.raw) for one in bad] == [(i, reason, b'{"messages":"[]"}') for i in (1, 2)]


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow"])
def test_a_map_with_a_key_twice_is_a_bad_conversation(tmp_path: Path, name: str) -> None:
    good = [("role", "user"), ("content", "x")]
    rows = pa.array([[good], [[*good, ("role", "tool")]], [good]], pa.list_(pa.map_(pa.string(), pa.string())))
    if name == "a.parquet":
        pq.write_table(pa.table({"messages": rows}), tmp_path / name)
    else:
        write_ipc(tmp_path / name, pa.table({"messages": rows}), pa.ipc.new_file)
    conversations = Conversations("messages", None, None)
    bad: list[BadDocument] = []
    (batch,) = read(tmp_path / name, conversations, None, on_bad=bad.append)
    reason = "column 'messages': expected maps with each key once; found a key twice."
    assert [(one.row, one.reason, one.raw) for one in bad] == [(1, reason, None)]
    assert batch.rows().to_pylist() == [0, 2]
    with pytest.raises(CorpusError, match=f"{name}, row 1: {reason} Correct the row"):
        read(tmp_path / name, conversations, None)


PAIRS = Conversations(None, None, None, PairColumns("prompt", "chosen", "rejected"))


@pytest.mark.parametrize("name", [name for name in WRITERS if not name.startswith("text")])
def test_each_part_of_a_pair_may_be_one_message_in_every_format(name: str, tmp_path: Path) -> None:
    said = {"content": "é", "name": "me", "role": "user"}
    rows: Rows = [
        {
            "id": str(i),
            "prompt": said,
            "chosen": {"content": f"a{i}", "role": "assistant"},
            "rejected": {"content": "b", "role": "assistant", "tool_calls": CALLS if i % 2 else None},
        }
        for i in range(5)
    ]
    WRITERS[name](tmp_path / name, rows)
    batches = read(tmp_path / name, PAIRS, batch_bytes=400)
    wanted = [of_pair(row["prompt"], row["chosen"], row["rejected"], None) for row in rows]
    assert found_in(batches) == [
        (row["id"], one.json.decode(), one.text) for row, one in zip(rows, wanted, strict=True)
    ]


@pytest.mark.parametrize("depth", [0, 1])
def test_a_struct_with_two_fields_of_a_name_is_refused(tmp_path: Path, depth: int) -> None:
    kind = pa.struct([("role", pa.string()), ("content", pa.string()), ("content", pa.string())])
    if depth:
        kind = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(kind))])
    rows = pa.table({"messages": pa.array([None], pa.list_(kind))})
    write_ipc(tmp_path / "a.arrow", rows, pa.ipc.new_file)
    with pytest.raises(
        ColumnError, match=r"column 'messages': expected lists of messages \(structs\).*; found .*content"
    ):
        read(tmp_path / "a.arrow", Conversations("messages", None, None), None)


def test_a_field_whose_name_is_no_utf8_is_damage(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("remark", pa.string())]))
    write_ipc(tmp_path / "a.arrow", pa.table({"messages": pa.array([None], kind)}), pa.ipc.new_file)
    found = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(found.replace(b"remark", b"rem\xe9rk"))
    with pytest.raises(DamagedError, match="the name of a column is not UTF-8"):
        read(tmp_path / "a.arrow", Conversations("messages", None, None), None)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_bytes_that_are_no_utf8_are_named_in_a_column_of_the_template(tmp_path: Path, name: str) -> None:
    rows = pa.table({"instruction": [b"a", b"b\xff"], "input": [None, None], "output": ["x", "y"]})
    if name == "a.parquet":
        pq.write_table(rows, tmp_path / name)
    else:
        write_ipc(tmp_path / name, rows, pa.ipc.new_file)
    with pytest.raises(CorpusError, match=f"{name}, row 1: column 'instruction': expected UTF-8; found 0xff at byte 1"):
        read(tmp_path / name, ALPACA, None)


WRONG_COLUMNS: dict[str, tuple[Conversations, Rows, list[str], str]] = {
    "no messages": (
        MESSAGES,
        [{"id": "a", "conversations": []}],
        ["'messages' is missing", "conversations", "Set source.messages_column in params.yaml"],
        "source.messages_column",
    ),
    "a column of the template": (
        ALPACA,
        [{"id": "a", "instruction": "x", "output": "y"}],
        ["'input' is missing", "id, instruction, output", "so that it names"],
        "source.template",
    ),
    "numbers in the template": (
        ALPACA,
        [{"id": "a", "instruction": "x", "input": 7, "output": "y"}],
        ["'input'", "expected", "string"],
        "source.template",
    ),
    "a number as messages": (
        MESSAGES,
        [{"id": "a", "messages": 7}],
        ["'messages'", "JSON text"],
        "source.messages_column",
    ),
}


@pytest.mark.parametrize("case", WRONG_COLUMNS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "file.arrow"])
def test_a_wrong_column_is_named_with_its_setting_and_the_columns_there_are(
    tmp_path: Path, name: str, case: str
) -> None:
    conversations, rows, expected, setting = WRONG_COLUMNS[case]
    WRITERS[name](tmp_path / name, rows)
    with pytest.raises(ColumnError) as error:
        read(tmp_path / name, conversations)
    assert error.value.setting == setting
    for part in [name, *expected]:
        assert part in str(error.value)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string()), pa.list_(pa.struct([("role", pa.string()), ("at", pa.timestamp("s"))]))]
)
def test_a_column_of_a_type_that_json_lacks_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"id": ["a"], "messages": pa.array([None], kind)}), tmp_path / "a.parquet")
    with pytest.raises(ColumnError, match=r"column 'messages': expected lists of messages \(structs\).*; found "):
        read(tmp_path / "a.parquet", Conversations("messages", None, None))


def test_lines_may_lack_the_tools_and_tables_may_not(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([ROWS[0]]))
    assert found_in(read(tmp_path / "a.jsonl")) == expected_of([ROWS[0]])
    pq.write_table(conversation_table([ROWS[0]]).select(["id", "messages"]), tmp_path / "a.parquet")
    with pytest.raises(ColumnError, match=r"'tools' is missing.*Set source\.tools_column .* or to null"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(("conversations", "setting"), [(MESSAGES, "messages_column"), (ALPACA, "template")])
def test_a_txt_file_has_no_conversations(tmp_path: Path, conversations: Conversations, setting: str) -> None:
    (tmp_path / "a.txt").write_text("Hi")
    with pytest.raises(
        ColumnError, match=rf"a\.txt: a file of plain text has no columns.*source\.{setting} in params\.yaml"
    ):
        read(tmp_path / "a.txt", conversations)


def test_messages_are_no_ids(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(ROWS))
    with pytest.raises(CorpusError, match=r"source\.messages_column and source\.id_column: both are 'messages'"):
        read(tmp_path / "a.jsonl", id_column="messages")


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_messages_are_no_tools(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    with pytest.raises(CorpusError, match=r"source\.messages_column and source\.tools_column: both are 'messages'"):
        read(tmp_path / name, Conversations("messages", "messages", None))


def test_a_column_of_the_template_that_is_the_id_cannot_be_null(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([{"instruction": None, "input": "x", "output": "y"}]))
    with pytest.raises(CorpusError, match="line 1: key 'instruction': expected a string, the id; found null"):
        read(tmp_path / "a.jsonl", ALPACA, "instruction")


def test_a_large_record_batch_is_made_in_pieces(tmp_path: Path) -> None:
    rows = many(3000)
    rows[2500]["messages"][0]["role"] = "bot"
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file,
        pa.ipc.new_file(file, conversation_table(rows).schema) as writer,
    ):
        writer.write_table(conversation_table(rows))
    bad: list[BadDocument] = []
    found = read(tmp_path / "a.arrow", on_bad=bad.append)
    assert [one.row for one in bad] == [2500]
    assert found_in(found) == expected_of(rows[:2500] + rows[2501:])
    assert [row for batch in found for row in batch.rows().to_pylist()] == [i for i in range(3000) if i != 2500]


@pytest.mark.parametrize(
    ("content", "n_short"), [(pa.string(), 2000), (pa.string_view(), 0), (pa.dictionary(pa.int32(), pa.string()), 0)]
)
def test_long_conversations_of_a_record_batch_are_made_few_at_a_time(
    tmp_path: Path, content: pa.DataType, n_short: int
) -> None:
    texts = ["short"] * n_short + [f"{i}" * 500_000 for i in range(9)] + ["x"] * 2
    roles = pa.array(["user"] * len(texts))
    messages = pa.StructArray.from_arrays([roles, pa.array(texts, content)], ["role", "content"])
    column = pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), messages)
    made = pa.table({"messages": column})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), made.schema) as writer:
        writer.write_table(made)
    conversations = Conversations("messages", None, None)
    found = list(read_columns(shard(tmp_path / "a.arrow"), Reading("text", conversations=conversations)))
    assert [text for one in found for text in one.texts.to_pylist()] == texts
    assert max(len(one.texts) for one in found) > n_short // 2
    assert max(pc.sum(pc.binary_length(one.texts)).as_py() for one in found) <= 4 << 20


def test_dropped_conversations_are_known_by_the_digest_of_their_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(ROWS))
    wanted = text_digests(pa.array([expected_of(ROWS)[1][1]], pa.large_string()))[0]

    def leave_out(batch: Batch) -> list[int]:
        found: list[int] = pc.indices_nonzero(pc.equal(text_digests(batch.digested), wanted)).to_pylist()
        return found

    batches = read(tmp_path / "a.jsonl", leave_out=leave_out)
    assert [one[0] for one in found_in(batches)] == ["a", "c"]
    assert batches[0].rows().to_pylist() == [0, 2]


def test_a_part_of_a_batch_has_its_messages(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(ROWS))
    batch = read(tmp_path / "a.jsonl")[0]
    assert found_in([batch.slice(1)]) == expected_of(ROWS)[1:]


def many(n: int) -> Rows:
    return [
        {"id": f"{i}", "messages": [{"role": "user", "content": f"{i} " * (i % 9)}, {"role": "tool", "content": "é"}]}
        for i in range(n)
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_units_of_a_large_file_give_the_conversations_and_rows_of_the_whole(tmp_path: Path, name: str) -> None:
    rows = many(400)
    if name == "a.jsonl":
        (tmp_path / name).write_bytes(lines(rows))
    else:
        pq.write_table(conversation_table(rows), tmp_path / name, row_group_size=30)
    (whole,) = find_shards(tmp_path, name)
    units = cut([whole], Digests(tmp_path / "facts"), 0, 4000, 1).units
    assert len(units) > 2
    found, positions = [], []
    for unit in units:
        (piece,) = unit.pieces
        for batch in read_batches(piece.shard, Reading("text", "id", None, MESSAGES), part=piece.part):
            found += found_in([batch])
            positions += batch.rows().to_pylist()
    assert sorted(found, key=lambda one: int(one[0])) == expected_of(rows)
    assert sorted(positions) == list(range(400))
    assert {(int(id), row) for (id, _, _), row in zip(found, positions, strict=True)} == {(i, i) for i in range(400)}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_rows_of_lists_that_are_read_at_once_are_bounded_where_averages_mislead(
    tmp_path: Path, version: str, dictionary: bool
) -> None:
    short = [{"id": "a", "messages": [{"role": "user", "content": str(i)}]} for i in range(3000)]
    long = [{"id": "a", "messages": [{"role": "user", "content": f"{i}" + "x" * 3000}] * 9} for i in range(99)]
    path = tmp_path / "a.parquet"
    pq.write_table(
        conversation_table(short + long),
        path,
        data_page_size=20_000,
        data_page_version=version,
        write_batch_size=4,
        use_dictionary=["messages.list.element.role"] if dictionary else False,
    )
    limits = Limits(None, 200_000)
    with pq.ParquetFile(path) as file:
        n_rows, _ = rows_within(shard(path), file.metadata, [0], ["id", "messages"], limits, 1024)
        batches = list(file.iter_batches(n_rows, columns=["id", "messages"]))
    assert 1 < n_rows < 1024
    assert max(batch.nbytes for batch in batches) < 2 * 200_000  # in Arrow each value has an offset, too
    assert found_in(read(path, limits=limits)) == expected_of(short + long)
    with pytest.raises(CorpusError, match=r"a\.parquet, row group 0: page \d+ of column 'messages\.list\.element\."):
        read(path, limits=Limits(None, 16_000))


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_a_conversation_larger_than_the_limit_is_refused(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, [ROWS[0], {"id": "b", "messages": [{"role": "user", "content": "x" * 5000}]}])
    with pytest.raises(CorpusError, match="the document is longer than 4,000 bytes"):
        read(tmp_path / name, batch_bytes=100, limits=Limits(4000, None))


def test_the_canonical_json_is_what_msgspec_writes_again(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(ROWS))
    for _, one, _ in found_in(read(tmp_path / "a.jsonl")):
        assert msgspec.json.encode(msgspec.json.decode(one)).decode() == one
