"""Checks that a table has the columns to read, with allowed types."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from tokenmill.corpus.bad_documents import ColumnError, missing, set_them, whom
from tokenmill.corpus.shards import Shard


class _ColumnKind(NamedTuple):
    """The requirement on a column that a key of params.yaml names: in words, as a test of its type, and with advice for the key."""

    expected: str
    is_right: Callable[[pa.DataType], bool]
    remedy: str = "to one of them"


def check_columns(shard: Shard, schema: pa.Schema, params: Sequence[tuple[str, str]]) -> None:
    """Raises ColumnError for columns that are missing, and for one that is duplicated, or of a wrong type. `params`: each
    column's name, with the key of params.yaml that says it. Raises pa.ArrowInvalid for a damaged schema."""
    try:
        names = schema.names
        absent = {name: param for name, param in params if name not in names}
        if not absent:
            for name, param in params:
                _check(shard, schema, name, param)
            return
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("the name of a column is not UTF-8") from None
    remedies = {shard.setting(param): _KINDS[param].remedy for param in absent.values()}
    words = missing("column", list(absent), names)
    raise ColumnError(f"{shard.name}: {words}", f"{set_them(remedies)}.", " and ".join(remedies))


def _check(shard: Shard, schema: pa.Schema, name: str, param: str) -> None:
    names, setting, kind = schema.names, shard.setting(param), _KINDS[param]
    if names.count(name) != 1:
        raise ColumnError(
            f"{shard.name}: the column {name!r} is there more than once; found the columns {', '.join(names)}.",
            f"Set {setting} in params.yaml, {whom(setting)}, {kind.remedy}.",
            setting,
        )
    found = schema.field(name).type
    if not kind.is_right(found) and not _is_null(found):
        raise ColumnError(
            f"{shard.name}: column {name!r}: expected {kind.expected}; found {found}.",
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


_IDS = _ColumnKind(
    "strings or integers", lambda kind: _is_text(kind) or bool(pa.types.is_integer(kind)), "to one of them or to null"
)
_KINDS = {  # by the key of params.yaml
    "text_column": _ColumnKind("strings", _is_text),
    "id_column": _IDS,
    "count.by": _IDS,
    "encode.split_group": _IDS._replace(remedy="to a column that every document has, or to null"),
    "validate.language_column": _IDS,
    "--language": _IDS,
    "messages_column": _ColumnKind(
        "lists of messages (structs), or their JSON texts", lambda kind: _is_text(kind) or _is_json_list(kind)
    ),
    "pair": _ColumnKind(
        "strings, messages (structs) or lists of them",
        lambda kind: _is_text(kind) or _is_object(kind) or _is_json_list(kind),
    ),
    "tools_column": _ColumnKind(
        "lists of tools (structs), or their JSON texts",
        lambda kind: _is_text(kind) or _is_json_list(kind),
        "to one of them or to null",
    ),
    "keep_columns": _ColumnKind("strings, numbers or bools", _is_plain, "to columns that they have"),
    "template": _ColumnKind("strings", _is_text, "so that it names columns that they have"),
}
