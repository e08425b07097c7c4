"""YAML is read within bounds: its length, its depth, and its length once aliases are written out."""

import os
from pathlib import Path

import pytest
from ruamel.yaml import YAML, YAMLError

from tokenmill.config.bounded_yaml import CHARACTERS_MAX, DVC_CHARACTERS_MAX, BoundsError, load, load_of_dvc
from tokenmill.config.load_params import load_params
from tokenmill.errors import ParamsError

BOMB = "\n      a0: &a0 [x]\n" + "".join(
    f"      a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)


def levels(first: str, of_list: str) -> str:
    """Nine values, each ten times the one before."""
    return f"a0: &a0 {first}\n" + "".join(
        f"a{i}: &a{i} {of_list.format(', '.join([f'*a{i - 1}'] * 10))}\n" for i in range(1, 10)
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (levels("[x]", "[{}]"), "aliases written out"),
        (levels("[]", "[{}]"), "aliases written out"),
        (levels("{k: 1}", "{{<<: [{}]}}"), "aliases written out"),
        (f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 10_000)}]", "line 2: with its aliases written out"),
        ("a: &a [*a]", r"line 1: the alias \*a is inside"),
        ("a:\n  b: &b {c: [*b]}", r"line 2: the alias \*b is inside"),
        ("[" * 5_000, "line 1: it is nested deeper than 64"),
        ("- " * 100_000, "line 1: it is nested deeper than 64"),
        ("? " * 100_000, "line 1: it is nested deeper than 64"),
        ("a: [\n" * 65, "line 33: it is nested deeper than 64"),
        ("x" * (CHARACTERS_MAX + 1), "1,048,577 characters; expected 1,048,576 at most"),
    ],
)
def test_yaml_beyond_a_bound_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(BoundsError, match=reason):
        load(text)


@pytest.mark.parametrize("text", ["a: [", "a: *b", "a: 1\na: 2", "\0", "a: 1\n---\nb: 2\n", "a: 'b\nc: d\n"])
def test_what_is_no_yaml_gets_the_error_of_the_parser(text: str) -> None:
    with pytest.raises(YAMLError) as expected:
        YAML(typ="safe", pure=True).load(text)
    with pytest.raises(YAMLError) as found:
        load(text)
    assert str(found.value) == str(expected.value)


def test_aliases_anchors_and_merges_are_read() -> None:
    assert load("a: &a {k: 1}\nb: [*a, *a]\nc: {<<: *a, d: 2}\n") == {
        "a": {"k": 1},
        "b": [{"k": 1}, {"k": 1}],
        "c": {"k": 1, "d": 2},
    }
    assert load("a: " + "[" * 63 + "]" * 63) is not None
    assert load("") is None


@pytest.mark.slow
def test_files_of_dvc_may_name_many_files() -> None:
    n = 20_000
    files = "".join(f"    - {{path: raw/{i:05d}.jsonl, hash: md5, md5: {i:032x}, size: {i}}}\n" for i in range(n))
    found = load_of_dvc(f"schema: '2.0'\nstages:\n  prepare:\n    deps:\n{files}")
    assert len(found["stages"]["prepare"]["deps"]) == n
    with pytest.raises(BoundsError, match=f"expected {DVC_CHARACTERS_MAX:,} at most"):
        load_of_dvc("x" * (DVC_CHARACTERS_MAX + 1))


@pytest.mark.parametrize("variables", [BOMB, "[" * 5_000], ids=["bomb", "deep"])
def test_params_beyond_a_bound_are_refused_with_file_and_line(variables: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"encode:\n  chat:\n    variables: {variables}", encoding="utf-8")
    with pytest.raises(ParamsError, match=r"params\.yaml: line \d+: .*\. Shorten it\.$") as found:
        load_params(path)
    assert found.value.code == "TM104"


def test_a_params_file_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.touch()
    os.truncate(path, 6 * 2**30)
    with pytest.raises(ParamsError, match=r"params\.yaml: cannot be read: it has 6,442,450,944 bytes, and "):
        load_params(path)
