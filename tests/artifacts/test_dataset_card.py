"""The card of a dataset says what its manifest says, and `datasets` finds the splits by it."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import tokenmill
from tests.conftest import Project
from tokenmill.artifacts.dataset_card import card_of
from tokenmill.dataset.manifest import read_manifest
from tokenmill_reader.copy_check import check

SPLITS = {"train": 0.5, "held-out": 0.5}


def header(card: str) -> Any:
    return YAML(typ="safe", pure=True).load(card.split("---\n")[1])


def test_a_dataset_without_file_sets_is_its_documents(project: Project) -> None:
    project.build()
    tokens = project.root / "data/tokens"
    card = (tokens / "README.md").read_text(encoding="utf-8")
    manifest = read_manifest(tokens)
    assert card == card_of(manifest, {None: []})
    assert [one["config_name"] for one in header(card)["configs"]] == ["documents"] and "license" not in header(card)
    assert "| documents | 6 |" in card and f"| tokens | {manifest.n_tokens} |" in card
    assert manifest.tokenizer_digest in card and manifest.digest in card
    assert not re.search(r"\| format \||\| source \|", card)
    assert str(project.root) not in card


def test_a_card_may_be_edited_or_removed(project: Project, tmp_path: Path) -> None:
    project.build()
    tokens = project.root / "data/tokens"
    path = tokens / "README.md"
    for text in ("another text", None):
        path.unlink()
        if text is not None:
            path.write_text(text, encoding="utf-8")
        assert check(tokens).wrong == []
        assert project.cli("verify").returncode == 0
    (tokens / "README.txt").write_text("x", encoding="utf-8")
    assert len(check(tokens).wrong) == 1
    assert project.cli("verify").returncode == 1


def test_a_licence_changes_the_card_alone(project: Project) -> None:
    sources = {"a": {"glob": "data/raw/a*"}, "b": {"glob": "data/raw/**/[!a]*"}}
    project.set(sources=sources)
    project.build()
    before = project.outputs()
    project.set(source__license="cc-by-4.0", sources=sources | {"b": sources["b"] | {"license": ["mit", "odc-by"]}})
    done = project.build()
    to_do = re.findall(r"(\S+): (\d+) of 2 units to do", done.stderr)
    assert to_do == [("count", "0"), ("encode", "0"), ("validate", "0")]
    after = project.outputs()
    (changed,) = [name for name in after if after[name] != before.get(name)]
    assert changed == "data/tokens/README.md" and before.keys() == after.keys()
    card = after[changed].decode()
    assert header(card)["license"] == ["cc-by-4.0", "mit", "odc-by"]
    assert re.search(r"\| `a` \|.*\| cc-by-4.0 \|", card) and re.search(r"\| `b` \|.*\| mit, odc-by \|", card)


@pytest.mark.parametrize(("given", "header_has"), [("mit", "mit"), (["mit", "mit"], "mit"), (["a", "b"], ["a", "b"])])
def test_each_licence_is_named_once(given: Any, header_has: Any, project: Project) -> None:
    project.set(source__license=given)
    project.build()
    assert header((project.root / "data/tokens/README.md").read_text("utf-8"))["license"] == header_has


@pytest.mark.parametrize("wrong", ["CC BY 4.0", [""], 3])
def test_a_licence_that_is_no_id_is_an_error(wrong: Any, project: Project) -> None:
    project.set(source__license=wrong)
    done = project.cli("build")
    assert done.returncode == 2 and "source.license" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("formats", "format"), [(["megatron", "arrow", "parquet"], "parquet"), (["arrow"], "arrow")])
def test_datasets_finds_every_split_and_epoch(
    formats: list[str], format: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    import datasets

    datasets.disable_progress_bars()
    project.write("deep/c.jsonl", [f"one more document, the {i}th" for i in range(40)])
    project.set(encode__formats=formats, encode__splits=SPLITS, encode__shuffle={"seed": 1, "epochs": 2})
    project.build()
    tokens = project.root / "data/tokens"
    load = partial(datasets.load_dataset, str(tokens), cache_dir=str(tmp_path / "cache"))
    for epoch in (0, 1):
        found = load(f"{format}-epoch-{epoch}")
        assert found.keys() == {"train", "held_out"}
        for split in SPLITS:
            ids = [row.tolist() for row in tokenmill.open(tokens, split, format=format, epoch=epoch)]
            assert found[split.replace("-", "_")]["input_ids"][:] == ids
    assert load()["train"]["input_ids"][:] == load(f"{format}-epoch-0", split="train")["input_ids"][:]
    if format == "parquet":
        assert len(load("documents", split="train")) == read_manifest(tokens).n_documents == 46
