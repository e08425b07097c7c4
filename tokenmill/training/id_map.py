"""The map between the ids of two tokenizers, one of which was made from the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenmill.tokenizer.merging import merge_all

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.tokenizer.tokenizer import Tokenizer

ID_MAP_FILE = "id_map.parquet"


def id_map(old: Tokenizer, new: Tokenizer) -> pa.Table:
    """A row for each token: `bytes` binary; `old_id` and `new_id` uint32, null where one of them lacks the token; and `parts`
    list<uint32>, what its bytes become by the merges of the tokenizer that lacks it.

    The rows are in the order of the old ids; tokens that only the new one has follow in the order of theirs. `parts` is empty for a
    token that both have, and for an added token, which is no text. The digests of both are in the metadata.
    """
    import pyarrow as pa

    assert old.model is not None
    assert new.model is not None
    added = [{added_token.text: added_token.id for added_token in model.added} for model in (old.model, new.model)]
    plain = [{token: id for id, token in model.tokens.items()} for model in (old.model, new.model)]
    in_new = {id: plain[1].get(token) for token, id in plain[0].items()}
    in_new |= {id: added[1].get(text) for text, id in added[0].items()}
    only_new = sorted({*new.tokens} - {*in_new.values()})
    rules = [{(merge.left, merge.right): merge for merge in model.merges} for model in (old.model, new.model)]

    def parts(token: bytes, which: int) -> list[int]:
        ids = [plain[which][byte] for i in range(len(token)) if (byte := token[i : i + 1]) in plain[which]]
        merge_all(ids, rules[which])
        return ids

    rows: list[tuple[bytes, int | None, int | None, list[int]]] = [
        (old.token_bytes(id), id, to, parts(old.model.tokens.get(id, b""), 1) if to is None else [])
        for id, to in sorted(in_new.items())
    ]
    rows += [(new.token_bytes(id), None, id, parts(new.model.tokens.get(id, b""), 0)) for id in only_new]
    shape = pa.schema(
        [
            pa.field("bytes", pa.binary(), nullable=False),
            pa.field("old_id", pa.uint32()),
            pa.field("new_id", pa.uint32()),
            pa.field("parts", pa.list_(pa.field("element", pa.uint32(), nullable=False)), nullable=False),
        ],
        metadata={"old_tokenizer_digest": old.digest, "new_tokenizer_digest": new.digest},
    )
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, shape, strict=True)], schema=shape)
