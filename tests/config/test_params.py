"""params.yaml: which values are refused, and the messages."""

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tokenmill.config.params import load_params
from tokenmill.errors import ParamsError

DELIVERED = (REPOSITORY / "params.yaml").read_text(encoding="utf-8")


def changed(tmp_path: Path, old: str, new: str) -> Path:
    assert old in DELIVERED
    path = tmp_path / "params.yaml"
    path.write_text(DELIVERED.replace(old, new), encoding="utf-8")
    return path


def test_the_delivered_params_are_valid() -> None:
    params = load_params(REPOSITORY / "params.yaml")
    assert params.encode.formats == ["parquet"]
    assert params.source.glob == ["data/raw/**/*"]


@pytest.mark.parametrize(
    ("old", "new", "place", "allowed"),
    [
        ("vocab_size: 16384", "vocab_sise: 16384", "train_vocab.vocab_sise", "Did you mean vocab_size?"),
        ("vocab_size: 16384", 'vocab_size: "16k"', "train_vocab.vocab_size: found '16k'", "a whole number"),
        ("vocab_size: 16384", "vocab_size: 256", "train_vocab.vocab_size: found 256", "257 or more"),
        ("vocab_size: 16384", "vocab_size: true", "train_vocab.vocab_size: found true", "a whole number"),
        ("engine: threads", "engine: thread", "run.engine: found 'thread'", "'threads' or 'inline'"),
        ("[parquet]", "[bin]", "encode.formats.0: found 'bin'", "'parquet'"),
        ("[parquet]", "[]", "encode.formats: found []", "1 or more of them"),
        (
            'end_of_document: "<|endoftext|>"',
            "end_of_document: <eos>",
            "encode.end_of_document: found '<eos>'",
            "<|endoftext|>",
        ),
        ('["<|endoftext|>"]', '["<|endoftext|>", "<|endoftext|>"]', "train_vocab.special_tokens", "every token once"),
        ("  pattern: gpt2", "  what: gpt2", "count.pattern: missing", "Copy its line"),
        ("glob: data/raw/**/*", "glob: null", "source.glob: found null", "a glob, or a list of globs"),
        ("approximate: null", "approximate: {err: 0.1}", "count.approximate.err: unknown key", "allowed: error."),
        ("store_gb_max: 50", "store_gb_max: .inf", "run.store_gb_max: found inf", "a finite number"),
        ("run: ", "runs: ", "runs: unknown key", "Did you mean run?"),
        ("  pattern: gpt2", "  pattern: [", "line ", "not valid YAML"),
    ],
)
def test_a_wrong_value_names_file_section_key_found_and_allowed(
    tmp_path: Path, old: str, new: str, place: str, allowed: str
) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(ParamsError) as error:
        load_params(path)
    assert str(path) in str(error.value)
    assert place in str(error.value)
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *[
            ("bad_documents_max: 0.001", f"bad_documents_max: {value}")
            for value in ("-1", "1.5", ".nan", "true", "many")
        ],
        *[("weights: {}", f"weights: {{data/*: {value}}}") for value in ("-1", ".inf", "1/0", "null")],
    ],
)
def test_a_value_of_two_kinds_is_refused_in_one_line(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(ParamsError, match=r"(?s)^[^\n]*: found [^\n]*; allowed: a [^\n]*\.$"):
        load_params(changed(tmp_path, old, new))


def test_a_vocab_size_that_is_too_small_is_told_with_the_one_that_is_enough(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"^[^\n]*train_vocab.vocab_size: found 12; allowed: 257 or more \(256 bytes"):
        load_params(changed(tmp_path, "vocab_size: 16384", "vocab_size: 12"))


def test_values_that_do_not_go_together_are_told_beside_values_that_are_wrong_alone(tmp_path: Path) -> None:
    text = DELIVERED
    for old, new in (
        ("vocab_size: 16384", "vocab_size: 100"),
        ("vocab_sizes: []", "vocab_sizes: [12]"),
        ('end_of_document: "<|endoftext|>"', "end_of_document: <eos>"),
        ("[parquet]", "[bin]"),
        ("unit_bytes_min: ", "unit_bytes_min: 9"),
        ("pair_count_min: ", "pair_count_min: -"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError) as error:
        load_params(tmp_path / "params.yaml")
    places = [line.split(": ")[1] for line in str(error.value).splitlines()]
    assert places == [
        "source.unit_bytes_max",
        "train_vocab.vocab_size",
        "train_vocab.pair_count_min",
        "train_vocab.vocab_sizes",
        "encode.formats.0",
        "encode.end_of_document",
    ]


def test_what_a_tokenizer_to_take_lacks_is_told_beside_what_is_wrong_with_it(tmp_path: Path) -> None:
    with pytest.raises(ParamsError) as error:
        load_params(
            changed(tmp_path, "tokenizer: null", "tokenizer: {from: x, name: y-z, pattern: 7, special_tokens: {}}")
        )
    version, pattern, special = str(error.value).splitlines()
    assert "tokenizer.version: found one of name and version" in version
    assert "tokenizer.pattern: found 7" in pattern
    assert "tokenizer.special_tokens: found together with name" in special


def test_a_misspelled_key_is_one_error_with_the_key_that_it_is_meant_for(tmp_path: Path) -> None:
    with pytest.raises(ParamsError) as error:
        load_params(changed(tmp_path, "vocab_size: 16384", "vocab_sise: 16384"))
    [line] = str(error.value).splitlines()
    assert "train_vocab.vocab_sise: unknown key" in line
    assert line.endswith("Did you mean vocab_size?")


def test_all_wrong_values_are_told_at_once(tmp_path: Path) -> None:
    path = changed(tmp_path, "vocab_size: 16384", "vocab_size: big")
    path.write_text(path.read_text(encoding="utf-8").replace("engine: threads", "engine: fast"), encoding="utf-8")
    with pytest.raises(ParamsError) as error:
        load_params(path)
    assert len(str(error.value).splitlines()) == 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"params.yaml: cannot be read: No such file"):
        load_params(tmp_path / "params.yaml")


def test_a_list_of_globs_is_allowed(tmp_path: Path) -> None:
    path = changed(tmp_path, "glob: data/raw/**/*", "glob: [a/*.parquet, b/*.txt]")
    assert load_params(path).source.glob == ["a/*.parquet", "b/*.txt"]
