"""Text is counted for a tokenizer as it splits it: normalized, with a space in front, and cut at added tokens."""

import json
from collections import Counter as Tally
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from tests.builders.tokenizer_files import FLAGS, GPT2
from tests.builders.trained import END, trained
from tests.conftest import make_project
from tokenmill import Counter, Tokenizer
from tokenmill.analysis.compare import compare
from tokenmill.config.load_params import load_params
from tokenmill.config.sources import Reading
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.counts.table import read_counts
from tokenmill.features.draft import draft_vocab
from tokenmill.features.plan.choose import choose
from tokenmill.features.plan.planning import make_plan
from tokenmill.features.plan.sampling import SampleSize
from tokenmill.tokenizer.preparing import Preparation
from tokenmill.tokenizer.tokenizer import unpickled
from tokenmill.training.id_counts import ids_in_counts
from tokenmill.training.trim import trim

TEXTS = [
    "Voilà un café",
    normalize("NFD", "où l'été est très élégant"),
    "10 \N{ANGSTROM SIGN}, \N{DEVANAGARI LETTER QA}",
    f"ok <sep>'s ok  <sep> {END}<sep>",
    normalize("NFD", "é<sep>éé<sep>"),
    "",
    " ",
    "zigzag",
]
"""Letters that are composed, decomposed and replaced, texts that an added token cuts, and at last a word for a new token."""
OLD = trained(
    [
        space + normalize("NFC", part)
        for space in ("", " ")
        for text in [*TEXTS[:-1], "unused"]
        for part in text.split("<sep>")
    ],
    vocab_size=400,
    pair_count_min=1,
    special_tokens=[END],
)


def with_added(**flags: bool) -> dict[str, Any]:
    added = {"id": OLD.vocab_size, "content": "<sep>", "special": False, **FLAGS, **flags}
    return {"added_tokens": [*OLD.document["added_tokens"], added]}


NFC = {"normalizer": {"type": "NFC"}}
SPACED = {"pre_tokenizer": {**GPT2, "add_prefix_space": True}}
KINDS: dict[str, dict[str, Any]] = {
    "as it stands": {},
    "NFC": NFC,
    "NFC in a sequence": {"normalizer": {"type": "Sequence", "normalizers": [NFC["normalizer"]]}},
    "a space in front": SPACED,
    "an added token": with_added(),
    "an added token with lstrip": with_added(lstrip=True, rstrip=True),
    "an added token with single_word": with_added(single_word=True),
    "a normalized added token": {**NFC, **with_added(normalized=True)},
    "all": {**NFC, **SPACED, **with_added()},
}


def file_of(kind: str) -> bytes:
    return json.dumps({**OLD.document, **KINDS[kind]}).encode()


def judged(file: bytes) -> list[list[int]]:
    """The ids of each of the texts, by tokenizers."""
    judge = tokenizers.Tokenizer.from_buffer(file)
    judge.encode_special_tokens = True
    return [judge.encode(text, add_special_tokens=False).ids for text in TEXTS]


def merged(tokenizer: Tokenizer, ids: list[list[int]]) -> dict[int, int]:
    """How often each id occurs, without those of added tokens."""
    added = {one.id for one in tokenizer.added_tokens}
    return dict(Tally(id for some in ids for id in some if id not in added))


def counted(tokenizer: Tokenizer, counts: pa.Table) -> dict[int, int]:
    return {id: int(n) for id, n in enumerate(ids_in_counts(tokenizer, counts)) if n}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_ids_in_counts_are_those_that_the_texts_get_and_trimming_takes_none_of_them(kind: str) -> None:
    tokenizer, used = unpickled(file_of(kind), 0), judged(file_of(kind))
    for texts in (TEXTS, [text.encode() for text in TEXTS], pa.chunked_array([TEXTS[:2], TEXTS[2:]])):
        counter = Counter("gpt2")
        counter.update(tokenizer.preparation.texts_to_split(texts))
        counts = counter.finish()
        assert counted(tokenizer, counts) == merged(tokenizer, used)
    trimmed = trim(tokenizer, ids_in_counts(tokenizer, counts).tolist(), min_count=1)
    assert trimmed.dropped and not {*trimmed.dropped} & {id for ids in used for id in ids}
    assert (tokenizer.preparation == Preparation()) == (kind == "as it stands")


@pytest.mark.slow
@pytest.mark.parametrize("section", ["extend", "trim"])
def test_every_place_that_counts_for_a_tokenizer_counts_what_it_splits(section: str, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", {"a.jsonl": TEXTS})
    (project.root / "old").mkdir()
    (project.root / "old/tokenizer.json").write_bytes(file_of("all"))
    base, used = Tokenizer.load(project.root / "old"), judged(file_of("all"))
    asked: dict[str, Any] = {"path": "old", "old_glob": "data/raw/*"}
    if section == "trim":
        asked = {"from": "old", "min_count": 1, "counts": None}
    project.set(train_vocab__vocab_size=base.vocab_size + 5, train_vocab__pair_count_min=1)
    params = load_params(project.root / "params.yaml")
    [rung] = choose(project.root, params, [300], ["gpt2"], 1)
    assert rung.n_tokens == sum(
        map(len, trained(TEXTS, vocab_size=300, pair_count_min=1, special_tokens=[END]).encode_batch(TEXTS))
    )
    project.set(**{f"train_vocab__{section}": {**asked, "digest": base.digest}})
    plan = make_plan(project.root, load_params(project.root / "params.yaml"), SampleSize())
    project.build()
    counts = read_counts(project.root / "data/counts/counts.parquet")
    assert counted(base, counts) == merged(base, used)
    assert plan.ranges["distinct"].point == counts.num_rows

    made = Tokenizer.load(project.root / "data/tokenizer")
    ids = judged((project.root / "data/tokenizer/tokenizer.json").read_bytes())
    training = json.loads((project.root / "data/tokenizer/training.json").read_text(encoding="utf-8"))
    assert training["n_text_tokens"] == sum(merged(made, ids).values())
    if section == "extend":
        assert training["extended"]["n_tokens_added"] == 5
        assert training["extended"]["n_old_documents_changed"] == sum(
            one != other for one, other in zip(used, ids, strict=True)
        )
    else:
        assert [[made.token_bytes(id) for id in some] for some in ids] == [
            [base.token_bytes(id) for id in some] for some in used
        ]
    in_dataset = Tally([*(id for some in ids for id in some), *[made.special_tokens[END]] * len(TEXTS)])
    table = pq.read_table(project.root / "data/tables/tokens_per_id.parquet").to_pydict()
    assert {id: n for id, n in zip(table["id"], table["count"], strict=True) if n} == in_dataset
    assert {
        id: int(n) for id, n in enumerate(draft_vocab.count(project.root / "data/tokens", False)) if n
    } == in_dataset
    [shard] = find_shards(project.root, "data/raw/*", "source.glob")
    batches = read_batches(shard, Reading("text", None, None))
    found = compare(base, trained(TEXTS[:1], vocab_size=260), (("data", batch) for batch in batches))
    tokens = {repr(base.token_bytes(id).decode(errors="replace")) for id in merged(base, used)}
    assert found.words and {token for word in found.words for token in word.one} <= tokens

    path = project.root / "data/counts/provenance.json"
    provenance = json.loads(path.read_text(encoding="utf-8"))
    del provenance["preparation"]
    path.unlink()
    path.write_text(json.dumps(provenance), encoding="utf-8")
    refused = project.cli("build", "--only", "train-vocab", "--force")
    expected = "normalized to NFC, with a space in front, cut at '<sep>'"
    assert f"counted in text as it stands; expected text {expected}, which old splits" in refused.stderr
