"""A folder gives the ids of AutoTokenizer, whatever stands beside its tokenizer.json, or is refused with the cause."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from tests.builders.chats import needs_new_transformers
from tokenmill import Counter, Tokenizer, train_vocab
from tokenmill.errors import TokenizerError
from tokenmill.features.convert.convert import convert, read_form
from tokenmill.tokenizer.chat_files import chat_templates_of, special_names
from tokenmill.tokenizer.formats.folder import content_of
from tokenmill.tokenizer.formats.transformers_classes import built_by, class_of

PLAIN = "PreTrainedTokenizerFast"
TEXTS = [
    "the cat <x> sat<y>on the<x><y>  mat 2026 <|endoftext|> <unk>",
    " a<x> b <y>\n\n 10 20 <s>the</s> <|im_start|>the",
    "naïve Ångström e\u0301 中文 [MASK] The CAT's",
    "<x",
    "",
]
CORPUS = [
    "the cat sat on the mat, the dog's 2026 naïve Ångström 中文",
    "a b ab the then there The CAT 10 20 30 1234",
] * 30


def byte_level() -> dict[str, Any]:
    counter = Counter(pattern="gpt2")
    counter.update(CORPUS)
    trained = train_vocab(counter.finish(), vocab_size=330, pattern="gpt2", special_tokens=["<|endoftext|>"])
    return trained.document


def with_digits() -> dict[str, Any]:
    document = byte_level()
    digits = {"type": "Digits", "individual_digits": True}
    return document | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, document["pre_tokenizer"]]}}


def with_added() -> dict[str, Any]:
    """Its added token <x> is not special, and takes white space with it."""
    document = byte_level()
    flags = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": True, "special": False}
    return document | {"added_tokens": [*document["added_tokens"], {"id": 330, "content": "<x>", **flags}]}


def of_characters() -> dict[str, Any]:
    """In the manner of Llama 2: a mark in front of every part of a text."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False))
    document: dict[str, Any] = json.loads(made.to_str())
    document["added_tokens"] = document["added_tokens"][:3]
    return document


def of_words() -> dict[str, Any]:
    special = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"]
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    )
    found: dict[str, Any] = json.loads(made.to_str())
    return found


def behind_a_gap() -> dict[str, Any]:
    """A special token of the vocabulary has an id behind a gap, as in cl100k_base, and add_tokens gave another one the next id."""
    document = byte_level()
    last = max(document["model"]["vocab"].values()) + 16
    document["model"]["vocab"]["<|last|>"] = last
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    document["added_tokens"] += [
        {"id": last + i, "content": text, **flags} for i, text in enumerate(("<|last|>", "<|im_start|>"))
    ]
    return document


KINDS = (byte_level, with_digits, with_added, behind_a_gap, of_characters, of_words)
DOCUMENTS = {one.__name__: one() for one in KINDS}


def token(content: str, **flags: bool) -> dict[str, Any]:
    return {"content": content, **flags}


def typed(content: str, **flags: bool) -> dict[str, Any]:
    return {"__type": "AddedToken", "content": content, **flags}


DECODER = {"330": token("<x>", special=True, normalized=False), "331": token("<y>", lstrip=True, rstrip=True)}
CONFIGS: dict[str, dict[str, Any]] = {
    "listed": {"added_tokens_decoder": DECODER},
    "listed with gaps, in the order of their ids": {"added_tokens_decoder": {"900": token("<x>"), "401": token("<y>")}},
    "listed and named": {"added_tokens_decoder": DECODER, "eos_token": "<y>", "additional_special_tokens": ["<x>"]},
    "listed with the flags of another file": {"added_tokens_decoder": {"0": token("<|endoftext|>", rstrip=True)}},
    "named": {"eos_token": "<x>", "pad_token": "<y>", "bos_token": None},
    "named by an object": {"eos_token": typed("<x>", lstrip=True, normalized=True), "unk_token": typed("<y>")},
    "named otherwise": {"image_token": "<x>", "boi_token": typed("<y>", rstrip=True), "use_token": True, "n_token": 5},
    "additional": {"additional_special_tokens": ["<y>", "", "<x>"]},
    "additional objects": {"additional_special_tokens": [typed("<y>", special=True), typed("<x>", single_word=True)]},
    "extra": {"extra_special_tokens": ["<x>"], "additional_special_tokens": ["<y>"]},
    "extra with names": {"extra_special_tokens": {"image_token": "<x>", "audio_token": "<y>"}},
    "specific": {"model_specific_special_tokens": {"image_token": "<x>"}, "extra_special_tokens": []},
    "settings without effect": {"add_prefix_space": True, "add_bos_token": True, "clean_up_tokenization_spaces": True},
    "a token of the vocabulary": {"eos_token": "the", "unk_token": "a"},
    "never split": {"eos_token": "<x>", "split_special_tokens": True},
    "a named number": {"eos_token": 5},
    "an object without a type": {"eos_token": {"content": "<x>"}},
    "listed by texts": {"added_tokens_decoder": {"330": "<x>"}},
    "of another version": {"fast_tokenizer_files": ["tokenizer.json", "tokenizer.4.0.0.json"]},
}
OTHER_FILES: dict[str, dict[str, dict[str, Any]]] = {
    "the map": {"special_tokens_map.json": {"eos_token": "<x>", "additional_special_tokens": ["<y>"]}},
    "the map with objects": {
        "special_tokens_map.json": {
            "eos_token": token("<x>", lstrip=True),
            "image_token": token("<y>", special=False, normalized=True),
            "extra_special_tokens": [token("<|im_start|>", rstrip=True), "<s>"],
        }
    },
    "the map and the configuration": {
        "tokenizer_config.json": {"eos_token": "<x>", "additional_special_tokens": ["<|im_start|>"]},
        "special_tokens_map.json": {"eos_token": "<y>", "additional_special_tokens": ["<s>"]},
    },
    "the map beside an empty list": {
        "tokenizer_config.json": {"extra_special_tokens": []},
        "special_tokens_map.json": {"additional_special_tokens": ["<y>"]},
    },
    "the map beside a list of added tokens": {
        "tokenizer_config.json": {"added_tokens_decoder": DECODER},
        "special_tokens_map.json": {"eos_token": "<s>"},
        "added_tokens.json": {"<|im_start|>": 332},
    },
    "older added tokens": {"added_tokens.json": {"<y>": 700, "<x>": 330}},
    "older added tokens that are named": {
        "tokenizer_config.json": {"eos_token": "<x>"},
        "added_tokens.json": {"<y>": 331, "<x>": 330},
    },
    "older added tokens with an id of another": {"added_tokens.json": {"<y>": 0, "<x>": 330}},
    "only a model": {"config.json": {"model_type": "llama"}},
    "a model that chooses a class": {"config.json": {"model_type": "gpt2"}},
    "a model whose class counts": {
        "config.json": {"model_type": "qwen2"},
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizerFast"},
    },
    "a model whose class does not count": {
        "config.json": {"model_type": "granite"},
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"},
    },
    "a model beside a plain class": {
        "config.json": {"model_type": "bert"},
        "tokenizer_config.json": {"tokenizer_class": PLAIN},
    },
    "a class in the model's configuration": {
        "config.json": {"model_type": "llama", "tokenizer_class": "GPT2TokenizerFast"}
    },
    "a model of another class": {"config.json": {"model_type": "t5", "time_limit": [0.0, float("inf")]}},
    "a model that is not known": {"config.json": {"model_type": "unheard_of"}},
}
CLASSES: dict[str, dict[str, Any]] = {
    name: {"tokenizer_class": name}
    for name in (
        "BartTokenizer BertTokenizer CodeGenTokenizer CohereTokenizerFast GPT2Tokenizer GPTNeoXTokenizer GemmaTokenizer "
        "LlamaTokenizer LlamaTokenizerFast Qwen2Tokenizer Qwen3_5Tokenizer RobertaTokenizer T5Tokenizer ByT5Tokenizer "
        f"WhisperTokenizer UnheardOfTokenizer {PLAIN}"
    ).split()
}
CLASSES |= {
    "GPT-2 with a space in front": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True},
    "GPT-2 without its names": {"tokenizer_class": "GPT2Tokenizer", "unk_token": None, "eos_token": "<x>"},
    "Qwen with listed tokens": {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": DECODER,
        "eos_token": "<y>",
    },
    "Cohere with listed tokens": {
        "tokenizer_class": "CohereTokenizer",
        "added_tokens_decoder": DECODER,
        "eos_token": "<y>",
    },
    "Llama as it was": {"tokenizer_class": "LlamaTokenizer", "legacy": True, "eos_token": "<x>"},
    "Llama without a space": {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False},
    "BERT with letters as they are": {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": False,
        "strip_accents": True,
    },
}
CASES: dict[str, dict[str, dict[str, Any]]] = {
    **{name: {"tokenizer_config.json": {"tokenizer_class": PLAIN, **one}} for name, one in CONFIGS.items()},
    **OTHER_FILES,
    **{f"class {name}": {"tokenizer_config.json": one} for name, one in CLASSES.items()},
}


def folder(tmp_path: Path, document: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]) -> Path:
    made = tmp_path / "tokenizer"
    made.mkdir()
    for name, content in {"tokenizer.json": document, **files}.items():
        (made / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return made


@needs_new_transformers
@pytest.mark.parametrize("of", DOCUMENTS)
@pytest.mark.parametrize("case", CASES)
def test_a_folder_gives_what_auto_tokenizer_gives_or_is_refused(tmp_path: Path, of: str, case: str) -> None:
    made = folder(tmp_path, DOCUMENTS[of], CASES[case])
    try:
        ours = Tokenizer.load(made)
    except TokenizerError as error:
        assert str(made) in str(error)  # a refusal names the file, or the folder
        return
    judge: Any = AutoTokenizer.from_pretrained(made)
    library = tokenizers.Tokenizer.from_buffer(content_of(made))
    saved = tmp_path / "saved"
    ours.save(saved)
    judge_of_saved: Any = AutoTokenizer.from_pretrained(saved)
    for text in TEXTS:
        expected = judge(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text, special="allow") == expected, text
        assert library.encode(text, add_special_tokens=False).ids == expected, text
        assert judge_of_saved(text, add_special_tokens=False)["input_ids"] == expected, text
    added = {
        one.id: (one.text, one.special, one.normalized, one.lstrip, one.rstrip, one.single_word)
        for one in ours.added_tokens
    }
    assert {name: judge.special_tokens_map.get(name) for name in special_names(made)} == special_names(made)
    assert special_names(made).get("eos_token") == judge.eos_token
    assert added == {
        id: (one.content, one.special, one.normalized, one.lstrip, one.rstrip, one.single_word)
        for id, one in judge.added_tokens_decoder.items()
    }


def vocab_and_merges(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> Path:
    model = DOCUMENTS["byte_level"]["model"]
    folder.mkdir()
    for name, content in {"vocab.json": model["vocab"], **files}.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"]), ""])
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    return folder


@needs_new_transformers
@pytest.mark.parametrize("case", CASES)
def test_vocab_and_merges_give_what_auto_tokenizer_gives_or_are_refused(tmp_path: Path, case: str) -> None:
    folder = vocab_and_merges(tmp_path / "tokenizer", CASES[case])
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    made = tmp_path / "made"
    try:
        judge: Any = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # noqa: BLE001 — whatever transformers raises for what it cannot read
        pytest.skip(f"transformers reads no such folder: {error}")
    if len(judge) < len(DOCUMENTS["byte_level"]["model"]["vocab"]):
        pytest.skip("the class takes no vocabulary from vocab.json")
    try:
        convert(folder, made)
    except TokenizerError as error:
        assert str(folder) in str(error)
        if "Give --pattern" not in str(error):
            return
        convert(folder, made, pattern="gpt2")
    ours = Tokenizer.load(made)
    for text in TEXTS:
        assert ours.encode(text, special="allow") == judge(text, add_special_tokens=False)["input_ids"], text
    assert {one.text: (one.id, one.special) for one in ours.added_tokens} == {
        one.content: (id, one.special) for id, one in judge.added_tokens_decoder.items()
    }
    assert special_names(made).get("eos_token") == judge.eos_token
    assert chat_templates_of(made) == {"default": judge.chat_template}


def test_a_pattern_that_contradicts_the_files_beside_it_is_refused(tmp_path: Path) -> None:
    folder = vocab_and_merges(tmp_path / "tokenizer", {"tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"}})
    with pytest.raises(TokenizerError, match="AutoTokenizer splits text in another way than --pattern says"):
        read_form(folder, "gpt2")
    assert read_form(folder, "qwen2").tokenizer.steps == read_form(folder).tokenizer.steps


def test_of_a_byte_level_tokenizer_only_these_folders_are_refused(tmp_path: Path) -> None:
    refused = set()
    for i, (case, files) in enumerate(CASES.items()):
        (tmp_path / f"{i}").mkdir()
        try:
            Tokenizer.load(folder(tmp_path / f"{i}", DOCUMENTS["byte_level"], files))
        except TokenizerError:
            refused.add(case)
    assert refused == {
        "a token of the vocabulary",  # which plain text becomes
        "never split",
        "a named number",  # transformers refuses this one and the next two as well
        "an object without a type",
        "listed by texts",
        "of another version",
        "a model of another class",
        *(f"class {name}" for name in ("BertTokenizer", "GemmaTokenizer", "T5Tokenizer", "ByT5Tokenizer")),
        "class BERT with letters as they are",
    }


def test_a_folder_whose_files_add_nothing_has_the_digest_of_its_file(tmp_path: Path) -> None:
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer",
            "eos_token": "<|endoftext|>",
            "add_prefix_space": False,
        },
        "special_tokens_map.json": {"bos_token": "<|endoftext|>"},
        "config.json": {"model_type": "gpt2"},
    }
    made = folder(tmp_path, DOCUMENTS["byte_level"], files)
    alone = Tokenizer.load(made / "tokenizer.json")
    assert Tokenizer.load(made).digest == alone.digest
    (made / "added_tokens.json").write_text('{"<x>": 330}')
    assert Tokenizer.load(made).digest != alone.digest == Tokenizer.load(made / "tokenizer.json").digest


@pytest.mark.parametrize("of", ["byte_level", "of_characters"])
def test_a_pickle_and_a_saved_copy_keep_the_tokens_of_the_folder(tmp_path: Path, of: str) -> None:
    made = folder(tmp_path, DOCUMENTS[of], CASES["named"])
    ours = Tokenizer.load(made)
    ours.save(tmp_path / "saved")
    copies = [
        pickle.loads(pickle.dumps(ours)),  # noqa: S301
        Tokenizer.load(tmp_path / "saved"),
        Tokenizer.load(tmp_path / "saved" / "tokenizer.json"),
    ]
    for copy in copies:
        assert (copy.digest, copy.special_tokens) == (ours.digest, ours.special_tokens)
        assert "<x>" in copy.special_tokens


@pytest.mark.parametrize("name", ["tokenizer.json", "special_tokens_map.json"])
def test_half_of_a_surrogate_pair_in_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    made = folder(tmp_path, DOCUMENTS["of_words"], CASES["class T5Tokenizer"] | {"special_tokens_map.json": {}})
    made.joinpath("tokenizer_config.json").write_text('{"bos_token": "<new>"}')
    document = json.loads(made.joinpath(name).read_bytes())
    made.joinpath(name).write_text(json.dumps({**document, "normalizer": {"type": "\ud800"}}))
    with pytest.raises(TokenizerError, match=rf"{name}: expected characters; found half of a surrogate pair"):
        Tokenizer.load(made)


def test_the_refusal_of_a_class_says_what_to_do(tmp_path: Path) -> None:
    made = folder(tmp_path, DOCUMENTS["of_words"], CASES["class T5Tokenizer"])
    with pytest.raises(
        TokenizerError, match=r"AutoTokenizer takes T5Tokenizer.*set tokenizer_class to PreTrainedTokenizerFast"
    ):
        Tokenizer.load(made)
    assert Tokenizer.load(made / "tokenizer.json").vocab_size


@pytest.mark.parametrize("name", ["<y>", "<x>", "the"], ids=["unknown", "added, not special", "made by merges"])
def test_names_that_an_earlier_version_wrote_beside_its_tokenizer_add_nothing(tmp_path: Path, name: str) -> None:
    ours = {"card.json": {}, "golden.json": {}}
    config = {"tokenizer_class": PLAIN, "eos_token": name}
    made = folder(tmp_path, DOCUMENTS["with_added"], {"tokenizer_config.json": config, **ours})
    assert Tokenizer.load(made).digest == Tokenizer.load(made / "tokenizer.json").digest


@needs_new_transformers
def test_the_tables_of_classes_are_those_of_transformers() -> None:
    from transformers.models.auto import tokenization_auto as auto
    from transformers.tokenization_utils_tokenizers import TokenizersBackend

    def kind(name: str) -> str | None:
        """What transformers has for a class: another way to make a tokenizer of tokenizer.json, or none."""
        try:
            found = auto.tokenizer_class_from_name(name)
        except ImportError:  # it needs a package
            return "another"
        if found is None or found.__name__ == "PythonBackend" or found is TokenizersBackend:
            return None
        if not issubclass(found, TokenizersBackend):
            return "another"
        return str(found.__name__) if "__init__" in vars(found) else None

    def ours(config: dict[str, Any], model_config: dict[str, Any]) -> str | None:
        name = class_of(config, model_config, is_byte_level=False)
        return None if name is None else name if built_by(name, {}) else "another"

    types = {name: (registered or "").removesuffix("Fast") for name, registered in auto.TOKENIZER_MAPPING_NAMES.items()}
    for name in {*types.values(), "CodeGenTokenizer", "DistilBertTokenizer", "Phi3Tokenizer", "PreTrainedTokenizer"} - {
        ""
    }:
        expected = kind(name)
        assert ours({"tokenizer_class": name}, {}) in (expected, "another" if expected else None), name
    for model_type, registered in types.items():
        if registered and registered != "MistralCommonBackend":
            expected = kind(registered)
            assert ours({}, {"model_type": model_type}) in (expected, "another" if expected else None), model_type
        plain = ours({"tokenizer_class": "GPT2Tokenizer"}, {"model_type": model_type})
        backends = ("TokenizersBackend", "MistralCommonBackend")
        misnamed = model_type in auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
        if registered in backends:
            assert plain is None, model_type
        elif registered:
            assert plain == (ours({}, {"model_type": model_type}) if misnamed else "GPT2Tokenizer"), model_type
