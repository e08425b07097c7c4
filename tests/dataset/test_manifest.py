"""The text and the digest of a manifest are those of its fields as one JSON document, though they are made in pieces."""

import hashlib
import json

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.dataset.entries import ChatEntry, InputRows, InputShard, OutputShard, ReadingEntry, SourceEntry
from tokenmill.dataset.manifest import Manifest

NAMES = st.text('ab"\\\n é\u2028', min_size=1, max_size=6)
READING = {"text_column": "text", "id_column": None, "text_separator": "\n"}
CHAT = ChatEntry(template="{}", template_name="x", mask="assistant", variables={"shards": []}, n_trained=1)
SUMS = {"n_documents": 1, "n_tokens": 2, "text_bytes": 3}


def shard(name: str, rows: list[str], is_chat: bool) -> OutputShard:
    return OutputShard(
        name=name,
        unit="key",
        n_bytes=4,
        sha256="0",
        rows=[InputRows(name=one, first_row=0, first_line=1, n_documents=1, n_bad=None) for one in rows],
        n_trained=1 if is_chat else None,
        **SUMS,
    )


@given(
    st.lists(NAMES, max_size=3),
    st.lists(st.lists(NAMES, min_size=1, max_size=2), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_pieces_are_the_text_of_one_json_document(
    inputs: list[str], shards: list[list[str]], is_chat: bool, is_named: bool
) -> None:
    source = SourceEntry(name="web", special_tokens_in_text="as_text", epochs=1.0, tokens=None, **READING, **SUMS)
    manifest = Manifest(
        engine="é",
        tokenizer_digest="1",
        params_digest="2",
        id_type="uint16",
        id_max=3,
        end_of_document_id=None,
        special_tokens_in_text="as_text",
        n_bad=0,
        quarantine_sha256="3",
        source=None if is_named else ReadingEntry(**READING),
        sources=[source] if is_named else [],
        chat=CHAT if is_chat else None,
        inputs=[InputShard(name=one, n_bytes=5, sha256="4", source="web" if is_named else None) for one in inputs],
        shards=[shard(f"{i}", rows, is_chat) for i, rows in enumerate(shards)],
        digest="5",
        **SUMS,
    )
    text = manifest.as_json()
    found = json.loads(text)
    assert text == json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    assert Manifest.model_validate_json(text) == manifest
    assert all(("source" in one) == is_named for one in found["inputs"])
    assert all(("n_trained" in one) == is_chat for one in found["shards"])
    del found["digest"]
    canonical = json.dumps(found, sort_keys=True, separators=(",", ":"))
    assert manifest.own_digest() == hashlib.sha256(canonical.encode()).hexdigest()
