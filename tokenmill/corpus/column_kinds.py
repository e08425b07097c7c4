"""What the columns hold that keys of params.yaml name, in tables and in lines of JSON."""

from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

import pyarrow as pa

from tokenmill.config.sources import Column
from tokenmill.corpus.bad_documents import ColumnError, missing, set_them, whom
from tokenmill.corpus.shards import Shard


class ColumnKind(NamedTuple):
    """What a column has to hold. `in_tables`, `is_right`: that of a table, in words and as a test of its type. `in_lines`, `json`:
    that of a line of JSON, in words and as a type for msgspec. `remedy`: what to set the key of params.yaml to if there is no such
    column, or key. `is_optional`: a line may lack it. `is_part`: a document without a right value is bad, as one without a text is;
    else it is an error, unless the document is left out. `is_json`: each value beside a document is given as JSON, else as a
    string."""

    in_tables: str
    is_right: Callable[[pa.DataType], bool]
    in_lines: str
    json: Any
    remedy: str = "to one of them"
    is_optional: bool = False
    is_part: bool = True
    is_json: bool = False

    @property
    def types(self) -> tuple[type, ...]:
        """The types of the values of JSON."""
        kinds = get_args(self.json) if isinstance(self.json, UnionType) else (self.json,)
        return tuple(get_origin(kind) or kind for kind in kinds)


def kind_of(column: Column) -> ColumnKind:
    """What this column has to hold."""
    return _KINDS[column.param]


def remedies(shard: Shard, columns: Sequence[Column], what: str) -> dict[str, str]:
    """What to set the keys to that name these columns, if they are missing. `what`: "column" or "key"."""
    return {shard.setting(column.param): kind_of(column).remedy.format(f"{what}s") for column in columns}


def check_columns(shard: Shard, schema: pa.Schema, columns: Sequence[Column]) -> None:
    """Raises ColumnError for columns that are missing, and for one that is duplicated, or of a wrong type. Raises pa.ArrowInvalid
    for a damaged schema."""
    try:
        names = schema.names
        absent = list({column.name: column for column in columns if column.name not in names}.values())
        if not absent:
            for column in columns:
                _check(shard, schema, column)
            return
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("the name of a column is not UTF-8") from None
    advice = remedies(shard, absent, "column")
    words = missing("column", [column.name for column in absent], names)
    raise ColumnError(f"{shard.name}: {words}", f"{set_them(advice)}.", " and ".join(advice))


def _check(shard: Shard, schema: pa.Schema, column: Column) -> None:
    names, setting, kind = schema.names, shard.setting(column.param), kind_of(column)
    if names.count(column.name) != 1:
        remedy = kind.remedy.format("columns")
        raise ColumnError(
            f"{shard.name}: the column {column.name!r} is there more than once; found the columns {', '.join(names)}.",
            f"Set {setting} in params.yaml, {whom(setting)}, {remedy}.",
            setting,
        )
    found = schema.field(column.name).type
    if not kind.is_right(found) and not _is_null(found):
        raise ColumnError(
            f"{shard.name}: column {column.name!r}: expected {kind.in_tables}; found {found}.",
            f"Set {setting} in params.yaml to another of {', '.join(names)}, or convert the column.",
            setting,
        )


def _is_null(kind: pa.DataType) -> bool:
    """Whether the type has no value but null. pandas and Spark write it for a column that is empty or has only nulls: without rows
    there are no documents, and a row is a document that lacks the value."""
    types = pa.types
    return bool(types.is_null(kind) or (types.is_dictionary(kind) and types.is_null(kind.value_type)))


def _is_text(kind: pa.DataType) -> bool:
    """Whether the values are texts: strings, bytes, or dictionaries of them."""
    types = pa.types
    is_views = types.is_string_view(kind) or types.is_binary_view(kind)
    if types.is_dictionary(kind):
        kind = kind.value_type  # is_views stays false here: pyarrow 26 cannot cast dictionaries of views
    return bool(is_views or types.is_string(kind) or types.is_large_string(kind) or _is_bytes(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_json_list(kind: pa.DataType) -> bool:
    """Whether the values are lists of objects that JSON can write: structs or maps, at any depth of lists, structs, maps, strings,
    numbers and bools. A list of which all are empty has elements of the type null. The fields of a struct have different names."""
    element = element_of(kind)
    return element is not None and (_is_object(element) or pa.types.is_null(element))


def _is_object(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        names = {field.name for field in kind}
        return len(names) == kind.num_fields and all(_is_json(field.type) for field in kind)
    return bool(pa.types.is_map(kind)) and _is_string(kind.key_type) and _is_json(kind.item_type)


def _is_json(kind: pa.DataType) -> bool:
    types = pa.types
    if (element := element_of(kind)) is not None:
        return _is_json(element)
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_plain = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)
    return bool(is_plain) or _is_string(kind) or _is_object(kind)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def element_of(kind: pa.DataType) -> pa.DataType | None:
    """The type of a list's elements; None for other types."""
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    return kind.value_type if is_list or is_view else None


def _is_plain(kind: pa.DataType) -> bool:
    """Whether the values are strings, numbers or bools that a column of the document index can hold."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_number = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
    return bool(is_number or types.is_boolean(kind)) or _is_string(kind)


def _is_name(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_integer(kind))


_NAMES = ColumnKind("strings or integers", _is_name, "a string or an integer", str | int, "to one of them or to null")
_KINDS: Mapping[str, ColumnKind] = {  # by the key of params.yaml, or the option
    "text_column": ColumnKind("strings", _is_text, "a string", str),
    "id_column": _NAMES,
    "count.by": _NAMES,
    "encode.split_group": _NAMES._replace(remedy="to a column that every document has, or to null", is_part=False),
    "validate.language_column": _NAMES,
    "--language": _NAMES,
    "messages_column": ColumnKind(
        "lists of messages (structs), or their JSON texts",
        lambda kind: _is_text(kind) or _is_json_list(kind),
        "an array of messages, or its JSON text",
        list[Any] | str,
    ),
    "pair": ColumnKind(
        "strings, messages (structs) or lists of them",
        lambda kind: _is_text(kind) or _is_object(kind) or _is_json_list(kind),
        "a text, a message or an array of messages",
        list[Any] | dict[str, Any] | str,
    ),
    "tools_column": ColumnKind(
        "lists of tools (structs), or their JSON texts",
        lambda kind: _is_text(kind) or _is_json_list(kind),
        "an array of tools, its JSON text, or null",
        list[Any] | str | None,
        "to one of them or to null",
        is_optional=True,
    ),
    "keep_columns": ColumnKind(
        "strings, numbers or bools",
        _is_plain,
        "a string, a number, true, false or null",
        str | int | float | bool | None,
        "to {} that they have",
        is_part=False,
        is_json=True,
    ),
    "template": ColumnKind("strings", _is_text, "a string or null", str | None, "so that it names {} that they have"),
}
