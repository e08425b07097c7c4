"""Groups of documents are measured as by hand."""

import json

import pyarrow as pa

from tokenmill import Counter, train_vocab
from tokenmill.report.groups import Measured, measure, scripts_of, words_of
from tokenmill.report.health import health_of
from tokenmill.report.panel import PANEL, panel_of
from tokenmill.tokenizer.reading import read_json
from tokenmill.tokenizer.tokenizer import Tokenizer


def tokenizer_of(text: str, n_merges: int) -> Tokenizer:
    counter = Counter(pattern="gpt2")
    counter.update([text])
    return train_vocab(counter.finish(), vocab_size=256 + n_merges, pattern="gpt2", special_tokens=[], pair_count_min=1)


def test_words_and_tokens_of_each_group() -> None:
    tokenizer = tokenizer_of(" the the the the", 3)  # " t", "he", " the" in some order
    texts = pa.array([" the the", " cat 12", "磨坊"], pa.large_string())
    scripts = scripts_of(texts)
    assert scripts.to_pylist() == ["Latin", "Latin", "Han"]
    groups = {"script": scripts, "lang": pa.array(["en", None, "zh"])}
    found = measure(tokenizer, texts, words_of(texts, scripts), groups)
    # " the the" is 2 tokens of 8 bytes; " cat 12" is 7 bytes, " c" and the like are no tokens; 磨坊 is 6 bytes.
    assert [len(tokenizer.encode(text)) for text in texts.to_pylist()] == [2, 7, 6]
    assert found["script"] == {
        "Han": Measured(1, 6, 1.0, None, None),
        "Latin": Measured(
            2, 15, round(15 / 9, 6), 2.0, round(2 / 3, 6)
        ),  # 1 + 1 + 4 tokens of 3 words, 2 of them whole
    }
    assert found["lang"] == {"en": Measured(1, 8, 4.0, 1.0, 1.0), "zh": Measured(1, 6, 1.0, None, None)}


def test_no_texts_have_no_groups() -> None:
    texts = pa.array([], pa.large_string())
    scripts = scripts_of(texts)
    assert measure(tokenizer_of("a", 0), texts, words_of(texts, scripts), {"script": scripts}) == {"script": {}}


def test_health_tells_unused_rare_and_partial_tokens() -> None:
    tokenizer = tokenizer_of("磨磨 abab", 3)
    ids = {tokenizer.token_bytes(id): id for id in tokenizer.ids}
    learned = [token for token in ids if len(token) > 1]
    assert len(learned) == 3
    found = health_of(tokenizer, {ids[learned[0]]: 10, ids[learned[1]]: 9})
    assert found["learned_tokens"] == 3
    assert [one["id"] for one in found["unused"]["first"]] == [ids[learned[2]]]
    assert [one["id"] for one in found["rare"]["first"]] == [ids[learned[1]]]
    partial = [token for token in learned if "\ufffd" in token.decode(errors="replace")]
    assert found["parts_of_characters"]["n_tokens"] == len(partial) > 0
    assert found["unreached"]["n_tokens"] == 0
    assert [one["n_bytes"] for one in found["longest"]] == sorted(map(len, learned), reverse=True)
    assert health_of(tokenizer, None)["unused"] is None


def test_a_token_that_its_own_text_does_not_give_is_unreached() -> None:
    tokenizer = tokenizer_of("abcd abcd", 0)
    document = tokenizer.document
    document["model"]["vocab"]["xyz"] = 256  # no merge makes it
    loaded = Tokenizer.of(read_json(json.dumps(document).encode(), "here"), "here", 0)
    found = health_of(loaded, dict.fromkeys(loaded.ids, 0))
    assert [one["token"] for one in found["unreached"]["first"]] == ["xyz"]


def test_the_panel_has_every_text_with_its_tokens() -> None:
    tokenizer = tokenizer_of("a", 0)
    found = panel_of(tokenizer, {"other": tokenizer})
    assert [one["name"] for one in found] == list(PANEL)
    assert all(len(one["tokens"]) == one["references"]["other"] == len(one["text"].encode()) for one in found)
