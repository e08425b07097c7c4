"""Every kind of added token, through everything that is done with a tokenizer, has the ids of `tokenizers` on its file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from tests.builders.conversation_sets import Conversation, manifest_of, write_unit
from tokenmill import Tokenizer, train_vocab
from tokenmill.analysis.compare import compare
from tokenmill.artifacts.golden import check_golden, read_golden, write_golden
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.artifacts.golden_texts import around
from tokenmill.artifacts.markdown import code
from tokenmill.artifacts.model_card import make_card, readme_of
from tokenmill.counts.counter import Counter
from tokenmill.dataset.manifest import write_manifest
from tokenmill.errors import ParamsError, TokenizerError
from tokenmill.features.conform.libraries import conform
from tokenmill.features.conform.texts import texts_of_tokens
from tokenmill.features.convert.convert import FORMATS, convert, read_form
from tokenmill.features.convert.inspect import check_tokenizer
from tokenmill.features.draft.draft_vocab import draft_vocab
from tokenmill.features.view.vocabulary import Vocabulary, bytes_as_shown
from tokenmill.tokenizer.model import CHARACTERS, bytes_of
from tokenmill.tokenizer.remapping import Remapping
from tokenmill.training.bpe import Goal, extend
from tokenmill.training.superwords import learn_superwords
from tokenmill.training.trim import trim

FLAGS = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
MERGES = ["f o", "fo o", "Ġ foo", "b a", "Ġfoo ba", "Ġfoo d", "Ġfooba r"]
END = "<|endoftext|>"
VOCAB = {END: 0} | {text: id for id, text in enumerate([*CHARACTERS, *(one.replace(" ", "") for one in MERGES)], 1)}
NEXT = len(VOCAB)
TEXTS = ("foo foobar food", "", " ", "a  b\n\n<|im_start|>", "<sep", "äöü ① 中文 👍", END)


def token(text: str, id: int = NEXT, **flags: bool) -> dict[str, Any]:
    return {"id": id, "content": text, **FLAGS, **flags}


def document(*added: dict[str, Any], vocab: dict[str, int] = VOCAB, **sections: Any) -> dict[str, Any]:
    """A byte-level tokenizer.json with a special token of its vocabulary, and these added tokens."""
    return {
        "version": "1.0",
        "added_tokens": [token(END, 0, special=True), *added],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": [one.split(" ") for one in MERGES]},
        **sections,
    }


BEHIND = {**VOCAB, "<|last|>": NEXT + 16}
"""A vocabulary with a gap below its largest id, which a special token has: so does cl100k_base as tokenizer.json."""
LAST = token("<|last|>", NEXT + 16, special=True)
KINDS: dict[str, dict[str, Any]] = {
    "special": document(token("<|im_start|>", special=True)),
    "not special": document(token("<sep>")),
    "normalized": document(token("<sep>", normalized=True), normalizer={"type": "NFC"}),
    "normalized, in a text that normalizing makes": document(token("é", normalized=True), normalizer={"type": "NFC"}),
    "lstrip": document(token("<sep>", lstrip=True)),
    "rstrip": document(token("<sep>", rstrip=True)),
    "single_word": document(token("<sep>", single_word=True)),
    "special with flags": document(token("<mask>", special=True, lstrip=True, rstrip=True, single_word=True)),
    "made by merges": document(token("foo", VOCAB["foo"])),
    "made by merges with ignore_merges": document(
        token("foo", VOCAB["foo"]),
        model={"type": "BPE", "ignore_merges": True, "vocab": VOCAB, "merges": [one.split(" ") for one in MERGES]},
    ),
    "behind a gap, in the vocabulary": document(LAST, token("<sep>", NEXT + 17), vocab={**BEHIND, "<sep>": NEXT + 17}),
    "behind a gap, as add_tokens numbers it": document(
        LAST, token("<|im_start|>", NEXT + 17, special=True), token("<sep>", NEXT + 18), vocab=BEHIND
    ),
    "in front of a gap": document(token("<sep>", NEXT + 1), LAST, vocab=BEHIND),
    "out of order": document(token("<b>", NEXT + 1), token("<a>", NEXT), token("<c>", NEXT + 2, special=True)),
    "an id inside the vocabulary": document(token("<sep>", 5)),
    "with spaces": document(token("  "), token(" a b ", NEXT + 1), token("\n\n", NEXT + 2)),
    "one letter": document(token("a", VOCAB["a"])),
    "one letter outside the alphabet": document(token("中")),
    "a byte of more than one in UTF-8": document(token("é", VOCAB["é"])),
    "letters that stand for bytes": document(token("éé")),
    "one inside another": document(token("<sep>"), token("<sep><sep>", NEXT + 1), token("p><", NEXT + 2)),
    "overlapping a special one": document(token("<|a"), token("<|a|>", NEXT + 1, special=True)),
}


def judge_of(folder: Path) -> Any:
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def texts_of(made: dict[str, Any]) -> list[str]:
    return [*TEXTS, *(around(one["content"]) for one in made["added_tokens"]), "cafe\u0301 e\u0301e\u0301"]


def written(folder: Path, made: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
    return folder


def assert_like(folder: Path, judge: Any, texts: list[str]) -> Tokenizer:
    """The tokenizer in a folder, after it gave the ids and the texts of the judge."""
    tokenizer = Tokenizer.load(folder)
    # The library decodes an added token to the bytes that its letters stand for, where each letter stands for one.
    of_bytes = [one for one in tokenizer.added_tokens if not one.text.isascii() and bytes_of(one.text)]
    assert {
        id: token.decode(errors="replace") for id, token in tokenizer.tokens.items() if id > 256 and not of_bytes
    } == {
        id: judge.decode([id], skip_special_tokens=False)
        for id in judge.get_vocab().values()
        if id > 256 and not of_bytes
    }
    assert tokenizer.tokens.keys() == set(judge.get_vocab().values())
    for special in (False, True):
        judge.encode_special_tokens = not special
        for text in texts:
            ids = judge.encode(text, add_special_tokens=False).ids
            assert tokenizer.encode(text, special="allow" if special else "as_text") == ids, text
            if not of_bytes:
                assert tokenizer.decode(ids) == judge.decode(ids, skip_special_tokens=False)
    return tokenizer


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> dict[str, Any]:
    return KINDS[request.param]


def loads(folder: Path, made: dict[str, Any]) -> Tokenizer:
    return assert_like(folder, judge_of(folder), texts_of(made))


def saved(folder: Path, made: dict[str, Any]) -> None:
    """What is written has the same ids in `tokenizers`, and the same digest here."""
    tokenizer = Tokenizer.load(folder)
    tokenizer.save(folder.parent / "saved")
    assert assert_like(folder.parent / "saved", judge_of(folder), texts_of(made)).digest == tokenizer.digest
    assert judge_of(folder.parent / "saved").get_vocab() == judge_of(folder).get_vocab()


def golden(folder: Path, made: dict[str, Any]) -> None:
    """The golden vectors have each token that is found in a text, and stop no build."""
    tokenizer = Tokenizer.load(folder)
    tokenizer.save(folder.parent / "saved")
    found = make_golden(folder.parent / "saved", tokenizer, {})
    write_golden(found, folder.parent / "saved")
    check_golden(folder.parent / "saved", tokenizer)
    ids = {id for one in found.vectors for id in one.ids}
    own = [one["content"] for one in made["added_tokens"] if not one["special"]]
    assert {judge_of(folder).token_to_id(text) for text in own} <= ids
    is_plain = not own and not any(one.has_flags for one in tokenizer.added_tokens)
    assert (found.engines["tiktoken"] is None) == (is_plain and tokenizer.steps is not None)
    assert read_golden(folder.parent / "saved") == found


def compares(folder: Path, made: dict[str, Any]) -> None:
    """Two tokenizers of which one lacks the added tokens differ, and the same ones do not."""
    tokenizer = Tokenizer.load(folder)
    assert not compare(tokenizer, tokenizer, []).ids_differ
    plain = written(folder.parent / "plain", document(vocab=made["model"]["vocab"], normalizer=made["normalizer"]))
    own = [one for one in made["added_tokens"] if not one["special"]]
    assert compare(tokenizer, Tokenizer.load(plain), []).ids_differ or not own
    assert check_tokenizer(folder)["special_tokens"] == tokenizer.special_tokens


def trims(folder: Path, made: dict[str, Any]) -> None:
    """Without a token of the vocabulary, the judge of the new file gives its ids, and all added tokens are there."""
    tokenizer = Tokenizer.load(folder)
    if tokenizer.model is None:
        return
    trim(tokenizer, [0] * (tokenizer.id_max + 1), keep=tokenizer.vocab_size - 1).tokenizer.save(
        folder.parent / "trimmed"
    )
    assert_like(folder.parent / "trimmed", judge_of(folder.parent / "trimmed"), texts_of(made))
    assert {one.text for one in Tokenizer.load(folder.parent / "trimmed").added_tokens} == {
        one["content"] for one in made["added_tokens"]
    }


def extends(folder: Path, made: dict[str, Any]) -> None:
    """With more tokens, the old ones have their ids in the judge's eyes, too."""
    tokenizer = Tokenizer.load(folder)
    counter = Counter("gpt2")
    counter.update(["the cat the cat the hat"] * 9)
    if tokenizer.model is None:
        return
    [longer] = extend(tokenizer, counter.finish(), tokenizer.vocab_size + 2, Goal()).tokenizers
    longer.save(folder.parent / "extended")
    assert_like(folder.parent / "extended", judge_of(folder.parent / "extended"), texts_of(made))
    assert judge_of(folder).get_vocab().items() <= judge_of(folder.parent / "extended").get_vocab().items()


def exports(folder: Path, made: dict[str, Any]) -> None:
    """Each format holds the same ids, or is refused by name."""
    texts, written_in = texts_of(made), []
    for format in FORMATS:
        try:
            files = convert(folder, folder.parent / format, format)
        except TokenizerError as refused:
            assert "cannot become" in str(refused), refused
            continue
        written_in.append(format)
        back = read_form(files[0], "gpt2" if format == "vocab-merges" else None).tokenizer
        judge = judge_of(folder)
        for special in (False, True):
            if special and format == "vocab-merges":  # which does not say that a token is special
                assert back.tokens == Tokenizer.load(folder).tokens
                continue
            judge.encode_special_tokens = not special
            for text in texts:
                ids = judge.encode(text, add_special_tokens=False).ids
                assert back.encode(text, special="allow" if special else "as_text") == ids, (format, text)
    assert "tokenizer.json" in written_in


def reaches(folder: Path, made: dict[str, Any]) -> None:
    """The texts that conform compares lead to each id that a text leads to."""
    tokenizer = Tokenizer.load(folder)
    texts = texts_of_tokens(tokenizer).values()
    assert all(around(one["content"]) in texts for one in made["added_tokens"])
    reached = {id for text in texts for id in tokenizer.encode(text, special="allow")}
    assert {id for text in texts_of(made) for id in tokenizer.encode(text, special="allow")} <= reached


def remaps(folder: Path, made: dict[str, Any]) -> None:
    """Ids become those of a trimmed tokenizer, or the refusal says to encode again."""
    tokenizer = Tokenizer.load(folder)
    if tokenizer.model is None:
        return
    smaller = trim(tokenizer, [0] * (tokenizer.id_max + 1), keep=tokenizer.vocab_size - 1).tokenizer
    texts = texts_of(made)
    try:
        remapping = Remapping(tokenizer, smaller)
    except TokenizerError as refused:
        assert "Encode the documents again" in str(refused)
        assert "made by merges" in next(name for name, one in KINDS.items() if one is made)
        return
    assert remapping(tokenizer.encode_batch(texts)).ids.to_pylist() == smaller.encode_batch(texts).to_pylist()


def learns(folder: Path, made: dict[str, Any]) -> None:
    """With these texts as special tokens, a vocabulary with tokens of several words has the judge's ids, or they are refused."""
    words, superwords = Counter("gpt2"), Counter("superbpe")
    for counter in (words, superwords):
        counter.update(["by the way by the sea"] * 9)
    special = [one["content"] for one in made["added_tokens"]]
    try:
        base = train_vocab(words.finish(), 262, "gpt2", special)
    except ParamsError as refused:
        assert "special_tokens" in str(refused) and any(repr(one) in str(refused) for one in special)
        return
    batches = superwords.finish().to_batches
    [longer] = learn_superwords(base, batches, "superbpe", 264, Goal(words_max=2)).learned.tokenizers
    longer.save(folder.parent / "longer")
    assert_like(folder.parent / "longer", judge_of(folder.parent / "longer"), texts_of(made))


def drafts(folder: Path, made: dict[str, Any]) -> None:
    """The draft vocabulary of a dataset has the ids of the judge, also those behind a gap."""
    ids = [id for text in texts_of(made) for id in judge_of(folder).encode(text, add_special_tokens=False).ids]
    id_max = Tokenizer.load(folder).id_max
    units = [[Conversation(ids, [1] * len(ids))]]
    written = [write_unit(folder.parent / "tokens", "u0", units[0], id_max)]
    write_manifest(manifest_of(written, units, id_max, None, []), folder.parent / "tokens")
    found = draft_vocab(folder.parent / "tokens", folder.parent / "draft", len({*ids}))
    assert np.flatnonzero(np.load(folder.parent / "draft/t2d.npy")).tolist() == sorted({*ids})
    assert (found.vocab_size, found.coverage[len({*ids})]) == (max(judge_of(folder).get_vocab().values()) + 1, 1.0)


def views(folder: Path, made: dict[str, Any]) -> None:
    """The page shows each added token as the text of the file, or as the byte whose id it has, and marks the special ones."""
    vocabulary, judge = Vocabulary(Tokenizer.load(folder)), judge_of(folder)
    own = {judge.token_to_id(one["content"]): one for one in made["added_tokens"]}
    raw = {id: (id <= 256 and bytes_of(one["content"])) or one["content"].encode() for id, one in own.items()}
    assert vocabulary.tokens([*own])["tokens"] == {
        id: [bytes_as_shown(raw[id]).replace(r"\n", "\\n\n"), raw[id].hex(), one["special"]] for id, one in own.items()
    }


def cards(folder: Path, made: dict[str, Any]) -> None:
    """The model card has the number of tokens of the judge, and the ids of all special tokens."""
    tokenizer, judge = Tokenizer.load(folder), judge_of(folder)
    tokenizer.save(folder.parent / "saved")
    card = make_card(tokenizer, make_golden(folder.parent / "saved", tokenizer, {}), None, None)
    own = [one for one in made["added_tokens"] if one["special"]]
    assert card.special_tokens == {one["content"]: judge.token_to_id(one["content"]) for one in own}
    assert card.vocab_size == judge.get_vocab_size()
    page = readme_of(card).replace("\\|", "|")
    assert all(f"{code(text)} = {id}" in page for text, id in card.special_tokens.items())


def conforms(folder: Path, made: dict[str, Any]) -> None:
    """Libraries that read tokenizer.json give its ids. tiktoken cannot know added tokens: conform says where its ids differ."""
    tokenizer = Tokenizer.load(folder)
    tokenizer.save(folder.parent / "saved")
    found = {one.consumer: one for one in conform(folder.parent / "saved", ["tokenizers", "transformers", "tiktoken"])}
    assert found["tokenizers"].verdict == found["transformers"].verdict == "same"
    like_tiktoken = make_golden(folder.parent / "saved", tokenizer, {}).engines["tiktoken"] is None
    assert (found["tiktoken"].verdict == "same") == like_tiktoken


DOINGS = [
    loads,
    saved,
    golden,
    compares,
    trims,
    extends,
    exports,
    reaches,
    remaps,
    learns,
    drafts,
    views,
    cards,
]


@pytest.mark.parametrize("do", [*DOINGS, pytest.param(conforms, marks=pytest.mark.slow)])
def test_an_added_token_has_the_id_of_tokenizers(
    tmp_path: Path, made: dict[str, Any], do: Callable[[Path, dict[str, Any]], None]
) -> None:
    folder = written(tmp_path / "tokenizer", made)
    do(folder, made)


def test_a_normalized_added_token_decodes_to_its_text_in_the_file(tmp_path: Path) -> None:
    """tokenizers 0.23 gives the normalized text, and 0.22 this one."""
    made = document(token("<SEP>", normalized=True), normalizer={"type": "Lowercase"})
    tokenizer = Tokenizer.load(written(tmp_path / "tokenizer", made))
    ids = judge_of(tmp_path / "tokenizer").encode("a<Sep>b").ids
    assert tokenizer.encode("a<Sep>b") == ids and NEXT in ids
    assert tokenizer.decode(ids) == "a<SEP>b"
