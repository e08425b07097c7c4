"""params.yaml: which values are refused, and the messages."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tests.builders.full_params import full_params
from tests.conftest import REPOSITORY
from tokenmill.config.load_params import load_params
from tokenmill.config.params import Params
from tokenmill.config.section import fields_of, model_of
from tokenmill.config.yaml_mistakes import mistake
from tokenmill.errors import ParamsError, TokenmillDeprecationWarning
from tokenmill.pretokenizers.patterns import names
from tokenmill.project.parameters import keys

DELIVERED = full_params()


def changed(tmp_path: Path, old: str, new: str) -> Path:
    assert old in DELIVERED
    path = tmp_path / "params.yaml"
    path.write_text(DELIVERED.replace(old, new), encoding="utf-8")
    return path


def test_the_delivered_params_are_valid() -> None:
    params = load_params(REPOSITORY / "params.yaml")
    assert params.encode.formats == ["parquet"]
    assert params.source.glob == ["data/raw/**/*"]


def test_a_key_that_is_missing_has_its_default(tmp_path: Path) -> None:
    full = load_params(changed(tmp_path, "sources: {}", "sources: {}"))
    (tmp_path / "params.yaml").write_text("source: {}", encoding="utf-8")
    assert load_params(tmp_path / "params.yaml") == load_params(REPOSITORY / "params.yaml") == full


def test_a_default_that_does_not_go_with_another_key_is_told(tmp_path: Path) -> None:
    text = "source: {unit_bytes_min: 99000000}\ntrain_vocab: {special_tokens: [<e>]}\n"
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError) as error:
        load_params(tmp_path / "params.yaml")
    large, end = str(error.value).splitlines()
    assert "source.unit_bytes_max: found 64000000; allowed: unit_bytes_min (99000000) or more" in large
    assert "encode.end_of_document: found '<|endoftext|>'; allowed: one of train_vocab.special_tokens" in end


GO_WITH: dict[str, dict[str, Any]] = {
    "source.tools_column": {"messages_column": "messages"},
    "tokenizer.version": {"name": "tokenizer"},
    "encode.split_group": {"splits": {"train": 1.0}},
    "encode.chat": {"end_of_document": None},
    "run.address": {"engine": "dask"},
}


def test_the_example_of_a_key_is_allowed() -> None:
    for name, key in keys().items():
        model: Any = Params
        *around, last = name.replace(".NAME", "").split(".")
        for part in around:
            model = model_of(dict(fields_of(model))[part].annotation)
        value = YAML(typ="safe", pure=True).load(key.example.replace("SHA256", "a" * 64))
        try:
            model.model_validate({**GO_WITH.get(name, {}), last: value})
        except ValidationError as error:
            assert [one["msg"] for one in error.errors() if one["loc"][0] == last] == [], name


def test_the_meaning_of_a_pattern_names_every_split_pattern() -> None:
    meaning = keys()["count.pattern"].meaning
    assert [name for name in names() if not re.search(rf"\b{name}\b", meaning)] == []


def test_the_remarks_of_a_new_project_are_those_of_the_keys() -> None:
    text = (REPOSITORY / "params.yaml").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    remarks, section = {}, ""
    for line in text.splitlines():
        if found := re.match(r"(  )?(\w+):(?: +(.*?) +# (.*))?$", line):
            section = section if found[1] else f"{found[2]}."
            name = f"{section}{found[2]}" if found[1] else found[2]
            if found[4]:
                remarks[name] = found[4]
                assert found[3] == keys()[name].default
                remark = found[4].replace(f", like {keys()[name].example}", "")
                assert re.match(rf"{re.escape(remark)}([.,:;]|$)", keys()[name].meaning), name
    assert len(remarks) == 20


@pytest.mark.parametrize(
    ("formats", "line", "part_bytes"),
    [
        ("[parquet]", "  file_bytes: null", 1 << 30),
        ("[parquet, litdata]", "  file_bytes: null", 1 << 26),
        ("[mds]", "  file_bytes: null", 1 << 26),
        ("[megatron, llmc]", "  file_bytes: null", 200_000_000),
        ("[litdata]", "  file_bytes: 1073741824", 1 << 30),  # as every params.yaml of version 0.1 says
        ("[litdata]", "", 1 << 26),
    ],
)
def test_null_stands_for_the_smallest_file_that_readers_like_and_old_projects_keep_theirs(
    formats: str, line: str, part_bytes: int, tmp_path: Path
) -> None:
    text = re.sub(r"^  file_bytes: .*$", line, DELIVERED.replace("[parquet]", formats), flags=re.MULTILINE)
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_params(path).encode.part_bytes == part_bytes


def test_vocabulary_sizes_to_encode_with_are_deprecated(tmp_path: Path) -> None:
    path = changed(tmp_path, "  vocab_sizes: []\n  begin", "  vocab_sizes: [8192]\n  begin")
    with pytest.warns(
        TokenmillDeprecationWarning, match=r"^encode.vocab_sizes: .*\{from: PROJECT/data/tokenizer/8192\}"
    ):
        assert load_params(path).encode.vocab_sizes == [8192]


def test_a_key_that_is_deprecated_is_read_with_a_warning_that_names_the_version_without_it(tmp_path: Path) -> None:
    path = changed(tmp_path, "  weights: {}", "  approximate: null\n  weights: {}")
    with pytest.warns(
        TokenmillDeprecationWarning, match="^count.approximate: is gone from tokenmill 0.5.0 on. Take the line out"
    ) as told:
        params = load_params(path)
    assert len(told) == 1
    assert params == load_params(changed(tmp_path, "  weights: {}", "  weights: {}"))


@pytest.mark.parametrize(
    ("old", "new", "place", "allowed"),
    [
        ("vocab_size: 16384", "vocab_sise: 16384", "train_vocab.vocab_sise", "Did you mean vocab_size?"),
        ("vocab_size: 16384", 'vocab_size: "16k"', "train_vocab.vocab_size: found '16k'", "a whole number"),
        ("vocab_size: 16384", "vocab_size: 256", "train_vocab.vocab_size: found 256", "257 or more"),
        ("vocab_size: 16384", "vocab_size: true", "train_vocab.vocab_size: found true", "a whole number"),
        ("engine: threads", "engine: thread", "run.engine: found 'thread'", "'threads', 'dask', 'ray' or 'inline'"),
        ("[parquet]", "[bin]", "encode.formats.0: found 'bin'", "'parquet'"),
        ("[parquet]", "[]", "encode.formats: found []", "1 or more of them"),
        (
            'end_of_document: "<|endoftext|>"',
            "end_of_document: <eos>",
            "encode.end_of_document: found '<eos>'",
            "<|endoftext|>",
        ),
        ('["<|endoftext|>"]', '["<|endoftext|>", "<|endoftext|>"]', "train_vocab.special_tokens", "every token once"),
        ("pack: null", "pack: {mode: none}", "encode.pack.length: missing", "`tokenmill params encode.pack.length`"),
        ("sources: {}", "sources: {a: {}}", "sources.a.glob: missing", "like data/raw/a/**/*"),
        ("  pack: null", "  pack: {length: 8}", "encode.pack.mode: missing", "allowed: none, concat, best_fit"),
        ("glob: data/raw/**/*", "glob: null", "source.glob: found null", "a glob, or a list of globs"),
        (
            "weights: {}",
            "approximate: {error: 0.1}\n  weights: {}",
            "count.approximate: found {'error': 0.1}",
            "allowed: null",
        ),
        ("store_gb_max: 50", "store_gb_max: .inf", "run.store_gb_max: found inf", "a finite number"),
        ("run:", "runs:", "runs: unknown key", "Did you mean run?"),
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


MISTAKES = {  # with the line that is to be named
    "unclosed dq": ('a: 1\nb: "abc\nc: 3\nd: 4\n', 2),
    "unclosed sq": ("a: 1\nb: 'abc\nc: 3\n", 2),
    "unclosed [": ("a: 1\nb: [x, y\nc: 3\nd: 4\n", 2),
    "unclosed {": ("a: 1\nb: {x: 1\nc: 3\n", 2),
    "unclosed [ at end": ("a: 1\nb: [x, y\n", 2),
    "bad indent deeper": ("s:\n  a: 1\n   b: 2\n  c: 3\n", 3),
    "bad indent shallower": ("s:\n  a: 1\n b: 2\nc: 3\n", 3),
    "deeper after plain": ("s:\n  a: x\n     b: 2\n", 3),
    "missing colon": ("s:\n  a 1\n  b: 2\n", 2),
    "missing colon comment": ("s:\n  a 1  # c: x\n  # foo: bar\n\n  b: 2\n", 2),
    "missing colon top": ("a: 1\nfoo\nb: 2\n", 2),
    "tab": ("s:\n\ta: 1\n", 2),
    "colon in text": ("s:\n  a: x: y\n  b: 1\n", 2),
    "missing space after colon": ("s:\n  a:1\n  b: 2\n", 2),
    "missing space after colon later": ("s:\n  b: 2\n  a:1\n  c: 1\n", 3),
    "extra ]": ("s:\n  a: x]\n  b: ]\n  c: 1\n", 3),
    "star": ("s:\n  glob: *.jsonl\n  b: 2\n", 2),
    "at": ("s:\n  a: @x\n", 2),
    "dup": ("s:\n  a: 1\n  a: 2\n", 3),
    "list dash": ("s:\n  a:\n  - x\n -y\n", 4),
    "quote then text": ('s:\n  a: "x" y\n  b: 1\n', 2),
    "bad escape": ('s:\n  a: "\\d"\n  b: 1\n', 2),
    "unclosed [ then section": ("s:\n  a: [x, y\n  b: 1\nt:\n  c: 2\n", 2),
    "unclosed quote w later quotes": ('s:\n  a: "x\n  b: "y"\n  c: 1\n', 2),
    "control": ("s:\n  a: \x01\n", 2),
    "merge": ("<<<<<<< HEAD\na: 1\n", 1),
    "merge2": ("s:\n<<<<<<< HEAD\n  a: 1\n=======\n  a: 2\n>>>>>>> x\n", 2),
    "two docs": ("a: 1\n---\nb: 2\n", 2),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_yaml_is_told_with_the_line_it_is_in(name: str) -> None:
    text, line = MISTAKES[name]
    with pytest.raises(YAMLError) as error:
        YAML(typ="safe", pure=True).load(text)
    assert mistake(text, error.value).startswith(f"line {line}: not valid YAML: ")


KEYS = [i for i, line in enumerate(DELIVERED.splitlines()) if line.startswith("  ") and line.strip()[0] != "#"]


@pytest.mark.parametrize("i", KEYS)
@pytest.mark.parametrize("how", [": -> ", ": -> :", ": -> : [x, ", ": -> : {x: y, ", ': -> : "', ": -> : '", "    -> "])
def test_a_mistake_in_any_line_of_params_is_told_with_that_line(tmp_path: Path, i: int, how: str) -> None:
    lines = DELIVERED.splitlines()
    lines[i] = lines[i].replace(*how.split("-> "), 1) if how.startswith(":") else f"   {lines[i]}"
    (tmp_path / "params.yaml").write_text("\n".join(lines), encoding="utf-8")
    try:
        load_params(tmp_path / "params.yaml")
    except ParamsError as error:
        if "not valid YAML" in str(error):
            lines_told = {i + 1}
            if how.startswith(" "):  # an indentation is wrong beside that of the next key
                lines_told.add(next((k + 1 for k in KEYS if k > i), i + 2))
            assert {line for line in lines_told if f": line {line}: not valid YAML: " in str(error)}, error


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[parquet]", "[arrow, arrow]", "encode.formats: found ['arrow', 'arrow']; allowed: each of them once"),
        ("splits: {}", "splits: {train: 0.9, test: 0.2}", "encode.splits: found shares that add up to 1.1"),
        ("splits: {}", "splits: {Train: 1.0}", "encode.splits.Train"),
        ("splits: {}", "splits: {val: 0.5, validation: 0.5}", "encode.splits: found both val and validation"),
        ("splits: {}", "splits: {held-out: 0.5, held_out: 0.5}", "encode.splits: found held-out and held_out; allowed"),
        ("splits: {}", "splits: {size: 1.0}", "encode.splits.size"),
        ("split_group: null", "split_group: repo", "encode.split_group: found 'repo' without splits"),
        ("pack: null", "pack: {length: 8, mode: concat, long: cut}", "encode.pack.long: found 'cut' with mode: concat"),
        ("pack: null", "pack: {length: 8, mode: none, output: index, labels: true}", "encode.pack.labels: found true"),
        ("pack: null", "pack: {length: 8, mode: none, pad: <pad>}", "encode.pack.pad: found '<pad>'; allowed: one of"),
        ("pack: null", "pack: {length: 8, mode: best}", "encode.pack.mode: found 'best'"),
        ("shuffle: null", "shuffle: {sead: 1}", "encode.shuffle.sead: unknown key"),
    ],
)
def test_a_wrong_value_of_the_files_for_training_jobs_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ParamsError) as error:
        load_params(changed(tmp_path, old, new))
    assert said in str(error.value)


def test_a_library_that_ids_cannot_be_compared_with_is_told(tmp_path: Path) -> None:
    with pytest.raises(ParamsError) as error:
        load_params(changed(tmp_path, "conform: []", "conform: [transformer]"))
    assert "publish.conform: found 'transformer'; allowed: fastokens, gigatoken, kitoken, llama.cpp, " in str(
        error.value
    )
    assert "; did you mean transformers." in str(error.value)
    assert load_params(changed(tmp_path, "conform: []", "conform: [tiktoken]")).publish.conform == ["tiktoken"]
