"""Tokenizers in the files of other programs: what is written is read back, and what would give other ids is refused."""

import base64
import json
import re
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, GPT2Tokenizer

from tests.builders.character_tokenizers import document as trained_characters
from tests.builders.gguf import gguf_file
from tests.builders.pieces import PIECES, PLAIN
from tests.builders.tekken import tekken_file
from tests.builders.tokenizer_files import DOCUMENT, ISOLATED, changed, loaded, split
from tests.builders.trained import TOKENIZER
from tokenmill import Tokenizer, _core
from tokenmill.cli.main import main
from tokenmill.errors import TokenizerError
from tokenmill.features.convert.commands import _FORMATS
from tokenmill.features.convert.convert import FORMATS, convert, read_form
from tokenmill.features.convert.formats.gguf import ARRAY, BOOL, FLOAT32, INT32, PATTERNS, STRING, UINT32
from tokenmill.features.convert.formats.llama_cpp_hash import CHECK_TEXT
from tokenmill.features.convert.formats.pieces import Kind, document_of, merges_of

TEXTS = ("the cat sat", "  the  mat\n\n12 345, äöü 中文 👍", "", " ", "<|endoftext|> abab")


def test_a_merge_makes_each_piece_of_each_two_pieces_the_highest_score_first() -> None:
    pairs = ["a b", "▁ ab", "a bb", "ab b", "b b"]  # of ab, ▁ab, abb, bb
    assert {tuple(pair) for pair in merges_of(PIECES, "x")} == {tuple(pair.split()) for pair in pairs}
    assert [left + right for left, right in merges_of(PIECES, "x")] == ["ab", "▁ab", "abb", "abb", "bb"]


def characters(tmp_path: Path) -> Path:
    """A folder with the tokenizer of the pieces."""
    loaded(tmp_path, document_of(PIECES, False, PLAIN, "x"))
    return tmp_path


@pytest.mark.parametrize("format", ["sentencepiece", "gguf"])
def test_a_vocabulary_of_characters_comes_back_from_the_files_of_sentencepiece_and_llama_cpp(
    tmp_path: Path, format: str
) -> None:
    before = Tokenizer.load(characters(tmp_path))
    (file,) = convert(tmp_path, tmp_path / "there", format)
    convert(file, tmp_path / "back")
    after = Tokenizer.load(tmp_path / "back" / "tokenizer.json")
    assert after.document["model"]["merges"] == before.document["model"]["merges"]
    assert after.tokens == before.tokens and after.special_tokens == before.special_tokens
    for text in (*TEXTS, "abb ab", " abab b"):
        assert after.encode(text) == before.encode(text)


@pytest.mark.parametrize("pattern", [*PATTERNS])
def test_a_gguf_comes_back_as_the_same_tokenizer(tmp_path: Path, pattern: str) -> None:
    steps = tuple(_core.patterns()[pattern])
    names = {"end_of_document": "<|endoftext|>"}
    with_pattern(steps).save(tmp_path / "own", **names)
    (tmp_path / "own" / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    (file,) = convert(tmp_path / "own", tmp_path / "there", "gguf")
    convert(file, tmp_path / "back")
    before, after = (Tokenizer.load(tmp_path / name) for name in ("own", "back"))
    assert after.tokens == before.tokens and after.special_tokens == before.special_tokens
    assert [after.encode(text) for text in TEXTS] == [before.encode(text) for text in TEXTS]
    if pattern not in ("cl100k", "llama3"):  # which both are llama-bpe there
        assert after.digest == before.digest
    assert json.loads((tmp_path / "back" / "tokenizer_config.json").read_bytes())["eos_token"] == "<|endoftext|>"
    assert (tmp_path / "back" / "chat_template.jinja").read_text(encoding="utf-8") == "{{ messages }}"


def with_pattern(steps: tuple[str, ...]) -> Tokenizer:
    """The trained tokenizer with another split."""
    assert TOKENIZER.model is not None
    return Tokenizer(replace(TOKENIZER.model, steps=steps))


def test_vocab_and_merges_come_back_with_the_pattern_that_is_given(tmp_path: Path) -> None:
    before = loaded(tmp_path, DOCUMENT)
    files = convert(tmp_path, tmp_path / "there", "vocab-merges")
    assert [file.name for file in files] == ["vocab.json", "merges.txt"]
    with pytest.raises(TokenizerError, match=r"vocab.json: does not say how text is split. Give --pattern"):
        convert(files[0], tmp_path / "back")
    convert(files[0], tmp_path / "back", pattern=before.pattern)
    after = Tokenizer.load(tmp_path / "back")
    assert [after.encode(text) for text in TEXTS[:4]] == [before.encode(text) for text in TEXTS[:4]]


def test_transformers_gives_the_same_ids_from_vocab_and_merges(tmp_path: Path) -> None:
    before = with_pattern(tuple(_core.patterns()["gpt2"]))
    before.save(tmp_path / "own")
    convert(tmp_path / "own", tmp_path / "there", "vocab-merges")
    judge = GPT2Tokenizer.from_pretrained(tmp_path / "there")
    for text in TEXTS[:4]:
        assert judge(text, add_special_tokens=False)["input_ids"] == before.encode(text)


@pytest.mark.parametrize("format", ["sentencepiece", "gguf"])
def test_a_folder_stands_for_the_file_of_another_program_in_it(tmp_path: Path, format: str) -> None:
    convert(characters(tmp_path), tmp_path / "there", format)
    assert read_form(tmp_path / "there").tokenizer.tokens == Tokenizer.load(tmp_path).tokens


def test_a_folder_with_the_files_of_several_programs_is_refused(tmp_path: Path) -> None:
    for format in ("sentencepiece", "gguf"):
        convert(characters(tmp_path), tmp_path / "there", format)
    with pytest.raises(
        TokenizerError, match=r"expected one file .* found tokenizer\.gguf, tokenizer\.model\. Name one"
    ):
        read_form(tmp_path / "there")


def test_a_tekken_json_has_its_special_tokens_before_the_others(tmp_path: Path) -> None:
    found = read_form(tekken_file(tmp_path, [{"rank": 0, "token_str": "<s>", "is_control": True}])).tokenizer
    assert found.special_tokens == {"<s>": 0, "<SPECIAL_1>": 1, "<SPECIAL_2>": 2}
    assert found.encode("ab ab!") == [
        259,
        ord(" ") + 3,
        259,
        ord("!") + 3,
    ]  # the last token is beyond default_vocab_size


def test_a_tekken_json_that_names_no_special_tokens_has_those_of_mistral_common(tmp_path: Path) -> None:
    form = read_form(tekken_file(tmp_path, None))
    assert form.tokenizer.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert form.names == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def test_a_tekken_json_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tekken_file(tmp_path, [{"rank": 0, "token_str": "<s>", "is_control": True}])
    convert(path, tmp_path / "own")
    (written,) = convert(tmp_path / "own", tmp_path / "there", "tekken")
    one, other = (json.loads(file.read_text(encoding="utf-8")) for file in (path, written))
    assert [token["token_bytes"] for token in other["vocab"]] == [token["token_bytes"] for token in one["vocab"][:257]]
    assert other["config"].items() >= one["config"].items() and other["config"]["num_vocab_tokens"] == 257
    assert [token["token_str"] for token in other["special_tokens"]] == ["<s>", "<SPECIAL_1>", "<SPECIAL_2>"]
    assert read_form(written).tokenizer.digest == Tokenizer.load(tmp_path / "own").digest


def test_a_vocabulary_in_another_order_is_no_tekken_json(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "gpt2")
    with pytest.raises(
        TokenizerError, match=r"id 2: cannot .* expected the byte 0x00, as it has special .* found b'!'"
    ):
        convert(tmp_path / "gpt2", tmp_path / "there", "tekken")
    convert(tekken_file(tmp_path, None), tmp_path / "own")
    file = tmp_path / "own/tokenizer.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["model"]["merges"].clear()
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"merge 0: cannot .* expected \['a', 'b'\]; found None"):
        convert(file, tmp_path / "there", "tekken")


def _unfused() -> dict[str, Any]:
    """A tokenizer that gives each of several unknown characters a token of its own."""
    document = document_of([one for one in PIECES if one.kind is not Kind.BYTE], False, PLAIN, "x")
    return document | {"model": document["model"] | {"fuse_unk": False}}


@pytest.mark.parametrize(
    ("name", "document", "format", "why"),
    [
        ("NFC", changed("normalizer", to={"type": "NFC"}), "gguf", "it changes no text"),
        (
            "own split",
            split(**ISOLATED, pattern={"Regex": "a|[^a]"}),
            "gguf",
            "no split",
        ),
        ("characters", trained_characters(), "vocab-merges", "it is not byte-level BPE"),
        ("bytes", DOCUMENT, "sentencepiece", "it is no BPE of characters"),
        ("few merges", trained_characters(), "sentencepiece", "would merge other pairs"),
        ("unknown characters apart", _unfused(), "sentencepiece", "it would be True"),
    ],
)
def test_a_format_that_would_give_other_ids_is_refused(
    tmp_path: Path, name: str, document: dict[str, Any], format: str, why: str
) -> None:
    loaded(tmp_path, document)
    with pytest.raises(TokenizerError, match=f"cannot become .* with the same ids: .*{why}"):
        convert(tmp_path, tmp_path / "there", format)
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("format", ["sentencepiece", "gguf"])
def test_a_file_that_was_cut_or_changed_is_an_error_or_a_tokenizer(tmp_path: Path, format: str) -> None:
    (file,) = convert(characters(tmp_path), tmp_path / "there", format)
    whole = file.read_bytes()
    for at in range(0, len(whole), 29):
        file.write_bytes(whole[:at])
        with pytest.raises(TokenizerError, match=file.name):
            read_form(file)
    for at in range(0, len(whole), 23):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read_form(file)
        except TokenizerError as error:
            assert str(file) in str(error)


def test_a_gguf_of_counts_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    (file,) = convert(characters(tmp_path), tmp_path / "there", "gguf")
    whole = file.read_bytes()
    file.write_bytes(whole[:16] + (1 << 40).to_bytes(8, "little") + whole[24:])
    with pytest.raises(TokenizerError, match="expected keys and values of GGUF; found 1,099,511,627,776 keys"):
        read_form(file)


def test_the_command_names_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded(tmp_path, DOCUMENT)
    assert main(["convert", str(tmp_path), str(tmp_path / "there"), "--to", "vocab-merges"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "there" / name) for name in ("vocab.json", "merges.txt")]
    assert main(["convert", str(tmp_path / "missing.gguf"), str(tmp_path / "there")]) == 2


def test_the_command_has_the_lines_that_the_converter_of_models_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The converter hashes the ids of AutoTokenizer, with the tokens that the post-processor adds."""
    with_pattern(tuple(_core.patterns()["gpt2"])).save(tmp_path / "gpt2", end_of_document="<|endoftext|>")
    file = tmp_path / "gpt2/tokenizer.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    begins = [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    token = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}
    document["post_processor"] = {"type": "TemplateProcessing", "single": begins, "pair": [], "special_tokens": token}
    file.write_text(json.dumps(document), encoding="utf-8")
    ids = AutoTokenizer.from_pretrained(tmp_path / "gpt2").encode(CHECK_TEXT)
    assert ids[0] == 0 and 0 not in ids[1:]
    expected = sha256(str(ids).encode()).hexdigest()
    assert main(["convert", str(tmp_path / "gpt2"), str(tmp_path / "there"), "--to", "gguf"]) == 0
    *_, one, two = capsys.readouterr().out.splitlines()
    assert (one, two) == (f'if chkhsh == "{expected}":', '    res = "gpt-2"')
    with_pattern(("a|[^a]",)).save(tmp_path / "unknown")
    assert main(["convert", str(tmp_path / "unknown"), str(tmp_path / "there"), "--to", "gguf"]) == 2
    assert re.search(r'src/llama-vocab\.cpp .*: if chkhsh == "[0-9a-f]{64}": res = "NAME"', capsys.readouterr().err)


def test_the_command_offers_all_formats() -> None:
    assert _FORMATS == FORMATS


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "ggml.model",
            (ARRAY, (STRING, ["llama"])),
            "ggml.model: expected gpt2 or llama; found 1 values of the type str",
        ),
        ("ggml.model", (UINT32, 7), "ggml.model: expected gpt2 or llama; found 7"),
        ("ggml.tokens", (ARRAY, (INT32, [1, 2, 3, 4])), "ggml.tokens: expected texts; found 4 values of the type int"),
        ("ggml.tokens", (STRING, "abcd"), "ggml.tokens: expected texts; found 'abcd'"),
        ("ggml.tokens", (ARRAY, (STRING, ["<unk>", "<s>", "a", "a"])), "expected every piece once; found 'a' twice"),
        (
            "ggml.token_type",
            (ARRAY, (FLOAT32, [2, 3, 1, 1])),
            "token_type: expected 4 types; found 4 values of the type float",
        ),
        (
            "ggml.token_type",
            (ARRAY, (INT32, [2, 3, 1])),
            "token_type: expected 4 types; found 3 values of the type int",
        ),
        ("ggml.token_type", (ARRAY, (INT32, [2, 3, 1, -1])), "token_type: expected types from 1 to 6; found -1"),
        ("ggml.scores", (ARRAY, (STRING, ["x"] * 4)), "scores: expected 4 scores; found 4 values of the type str"),
        ("ggml.scores", (ARRAY, (FLOAT32, [0, 0, float("nan"), 0])), "scores: expected numbers; found nan"),
        ("ggml.scores", None, "scores: expected 4 scores; found none"),
        ("ggml.add_space_prefix", (UINT32, 1), "add_space_prefix: expected true or false; found 1"),
        ("ggml.bos_token_id", (STRING, "1"), "bos_token_id: expected an id; found '1'"),
        ("ggml.bos_token_id", (BOOL, True), "bos_token_id: expected an id; found True"),
        ("chat_template", (UINT32, 1), "chat_template: expected a text; found 1"),
        ("x", (ARRAY, (ARRAY, [(INT32, [])])), "expected keys and values of GGUF; found a list in a list"),
    ],
)
def test_a_field_of_a_gguf_of_another_type_is_named(
    tmp_path: Path, key: str, value: tuple[int, Any] | None, message: str
) -> None:
    with pytest.raises(TokenizerError, match=re.escape(message)):
        read_form(gguf_file(tmp_path / "x.gguf", {key: value}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ggml.pre", (ARRAY, (STRING, ["gpt-2"])), "pre: expected one of llama-bpe,"),
        ("ggml.merges", (ARRAY, (INT32, [1])), "merges: expected texts; found 1 values of the type int"),
        ("ggml.tokens", (ARRAY, (STRING, ["a", "b", "b", "c"])), "tokens: expected every token once; found 'b' twice"),
        ("ggml.token_type", (ARRAY, (INT32, [1, 1, 1, 99])), "token_type: expected types from 0 to 6; found 99"),
    ],
)
def test_a_field_of_a_byte_level_gguf_of_another_type_is_named(
    tmp_path: Path, key: str, value: tuple[int, Any], message: str
) -> None:
    with pytest.raises(TokenizerError, match=re.escape(message)):
        read_form(gguf_file(tmp_path / "x.gguf", {"ggml.model": (STRING, "gpt2"), key: value}))


def test_fields_of_a_gguf_that_nobody_uses_may_be_anything(tmp_path: Path) -> None:
    others = {"general.x": (ARRAY, (STRING, ["x"])), "ggml.eos_token_id": (INT32, -1), "ggml.bos_token_id": (INT32, 1)}
    form = read_form(gguf_file(tmp_path / "x.gguf", others))
    assert form.names == {"bos_token": "<s>"}


def sparse_ids(tmp_path: Path) -> Path:
    """A .tiktoken file whose last id is far beyond the others."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab"]
    ids = [*range(256), 16_000_000]
    lines = [b"%s %d\n" % (base64.b64encode(token), id) for token, id in zip(tokens, ids, strict=True)]
    path = tmp_path / "sparse.tiktoken"
    path.write_bytes(b"".join(lines))
    return path


def tekken_with(tmp_path: Path, **changes: Any) -> Path:
    """A tekken.json with some of its values changed."""
    path = tekken_file(tmp_path, [{"rank": 0, "token_str": "<s>", "is_control": True}])
    values = json.loads(path.read_bytes())
    values["config"] |= changes.pop("config", {})
    path.write_text(json.dumps(values | changes), encoding="utf-8")
    return path


def test_a_number_of_special_tokens_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    many = {"default_num_special_tokens": 30_000_000, "default_vocab_size": 30_000_256}
    with pytest.raises(
        TokenizerError,
        match=r"default_num_special_tokens: expected 65,537 at most, since the file lists 1; found 30,000,",
    ):
        read_form(tekken_with(tmp_path, config=many))


def test_a_gguf_of_more_ids_than_tokens_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="15,999,744 ids have no token; 65,536 may have none"):
        convert(sparse_ids(tmp_path), tmp_path / "there", "gguf", "gpt2")


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([{"rank": -1, "token_str": "<s>"}], "special_tokens[0].rank: expected 0, its place; found -1"),
        (
            [{"rank": 0, "token_str": "a"}, {"rank": 0, "token_str": "b"}],
            "special_tokens[1].rank: expected 1, its place; found 0",
        ),
        ([{"rank": 0, "token_str": "a"}, {"rank": 1, "token_str": "a"}], "expected every token once; found 'a' twice"),
        ([{"rank": 0, "token_str": "<SPECIAL_2>"}], "expected every token once; found '<SPECIAL_2>' twice"),
    ],
)
def test_a_special_token_of_a_tekken_json_has_one_place(tmp_path: Path, listed: Any, message: str) -> None:
    with pytest.raises(TokenizerError, match=re.escape(message)):
        read_form(tekken_with(tmp_path, special_tokens=listed))


@pytest.mark.parametrize(
    ("id", "message"), [(5, r"expected every token once; found b'\x05' twice"), (None, "vocab[256].rank: expected 256")]
)
def test_a_token_of_a_tekken_json_has_one_place(tmp_path: Path, id: int | None, message: str) -> None:
    values = json.loads(tekken_with(tmp_path).read_bytes())
    if id is None:
        values["vocab"][256]["rank"] = -1
    else:
        values["vocab"][256]["token_bytes"] = values["vocab"][id]["token_bytes"]
    with pytest.raises(TokenizerError, match=re.escape(message)):
        read_form(tekken_with(tmp_path, vocab=values["vocab"]))


def test_convert_is_imported_under_its_name_of_0_3() -> None:
    assert import_module("tokenmill.tokenizer.conversions.convert").convert is convert
