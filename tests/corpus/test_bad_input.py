"""Input that cannot be built gives one clear error message and no half-written output."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Project


def _append(path: Path, content: bytes) -> None:
    path.write_bytes(path.read_bytes() + content)


def _line(**row: object) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _truncated_zst(project: Project) -> None:
    zstandard = pytest.importorskip("zstandard")
    whole = zstandard.compress(b"".join(_line(id=str(i), text=f"document {i}") for i in range(1000)))
    (project.root / "data/raw/c.jsonl.zst").write_bytes(whole[: len(whole) // 2])


CASES: dict[str, tuple[Callable[[Project], object], list[str]]] = {
    "no files match": (lambda p: p.set(source__glob="data/raw/*.parquet"), ["data/raw/*.parquet", "a.jsonl"]),
    "no text column": (lambda p: p.set(source__text_column="body"), ["a.jsonl", "body", "text"]),
    "null text": (lambda p: _append(p.root / "data/raw/a.jsonl", _line(id="x", text=None)), ["a.jsonl", "4", "null"]),
    "a number as text": (
        lambda p: _append(p.root / "data/raw/a.jsonl", _line(id="x", text=7)),
        ["a.jsonl", "4", "int"],
    ),
    "invalid JSON": (lambda p: _append(p.root / "data/raw/a.jsonl", b'{"id": "x", "text": \n'), ["a.jsonl", "line 4"]),
    "truncated zst": (_truncated_zst, ["c.jsonl.zst", "truncated"]),
    "invalid UTF-8": (
        lambda p: _append(p.root / "data/raw/a.jsonl", b'{"id": "x", "text": "\xff"}\n'),
        ["a.jsonl", "UTF-8"],
    ),
    "a typo in params": (
        lambda p: p.set(train_vocab__vocabsize=300),
        ["params.yaml", "train_vocab.vocabsize", "vocab_size"],
    ),
    "too small a vocabulary": (lambda p: p.set(train_vocab__vocab_size=256), ["train_vocab.vocab_size", "256", "257"]),
    "a pattern that is no regex": (lambda p: p.set(count__pattern="(["), ["(["]),
    "a shard of unknown kind": (lambda p: (p.root / "data/raw/notes.doc").touch(), ["notes.doc", ".parquet"]),
    "data outside dvc.yaml's deps": (
        lambda p: (
            (p.root / "more").mkdir(),
            (p.root / "more/x.txt").write_text("x"),
            p.set(source__glob="more/*.txt", source__id_column=None),
        ),
        ["dvc.yaml", "more/x.txt", "deps"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_stops_the_build_with_one_message_and_leaves_nothing(project: Project, case: str) -> None:
    make, expected = CASES[case]
    make(project)
    done = project.cli("build")
    assert done.returncode == 2, done.stderr
    message = done.stderr.split("tokenmill: error[TM", 1)[1]
    for part in expected:
        assert part.lower() in message.lower(), message
    assert "Traceback" not in done.stderr
    assert project.outputs() == {}
    assert not (project.root / "dvc.lock").exists()


def test_an_empty_file_and_an_empty_document_are_fine(project: Project) -> None:
    project.write("empty.jsonl", [])
    project.write("blank.jsonl", [""])
    project.build()


def test_a_small_corpus_stops_training_early_and_says_at_how_many(project: Project) -> None:
    project.set(train_vocab__vocab_size=5000, train_vocab__forbid=["[aeiou]."], run__report_page=True)
    done = project.build()
    assert "stopped early at" in done.stderr
    assert "of 5,000 tokens" in done.stderr
    report = json.loads((project.root / "data/report/report.json").read_text(encoding="utf-8"))
    assert report["vocab_size"] < report["vocab_size_asked"] == 5000
    for page in ("data/report/report.html", "data/tokenizer/README.md"):
        text = (project.root / page).read_text(encoding="utf-8")
        assert "vocabulary was not reached" in text
        assert f"refused {report['learned_with']['n_refused']:,} tokens" in text
    n_tokens = report["vocab_size"]
    project.set(train_vocab__vocab_size=n_tokens + 1, train_vocab__pad_vocab_to=128)
    assert f"stopped early at {n_tokens} of {n_tokens + 1} tokens" in project.build("--only", "train-vocab").stderr


def test_a_folder_without_params_is_told_what_is_missing(tmp_path: Path, project: Project) -> None:
    lost = Project(tmp_path)
    done = lost.cli("build")
    assert done.returncode == 2
    assert "found no params.yaml" in done.stderr


def test_a_folder_that_is_no_repository_is_told_what_to_run(project: Project) -> None:
    (project.root / ".dvc").rename(project.root / "gone")
    done = project.cli("build")
    assert done.returncode == 2
    assert "git init && dvc init" in done.stderr


def test_an_unknown_stage_is_refused_with_those_there_are(project: Project) -> None:
    done = project.cli("build", "--only", "counting")
    assert done.returncode == 2
    assert "count, train-vocab, encode, validate" in done.stderr


def test_an_input_that_changes_while_its_stage_runs_is_not_recorded(project: Project) -> None:
    from tokenmill.errors import VersionsError
    from tokenmill.versioning import dvc_stage

    changed = pytest.raises(VersionsError, match="changed while the stage ran")
    with changed, dvc_stage.opened(project.root, "count", {}) as stage, stage.recording():
        (project.root / "data/counts").mkdir(parents=True)
        (project.root / "data/counts/counts.parquet").touch()
        _append(project.root / "data/raw/a.jsonl", _line(id="x", text="more"))
    assert not (project.root / "dvc.lock").exists()


@pytest.mark.parametrize("options", [[], ["--rehash"]])
def test_what_a_signal_cut_while_it_was_made_is_no_traceback(options: list[str]) -> None:
    script = """
import sys
from types import SimpleNamespace
from tokenmill.cli import main as cli

class Half:
    def __init__(self):
        raise KeyboardInterrupt
    def __del__(self):
        self.missing

cli.make_parser = lambda _: SimpleNamespace(parse_args=lambda _: SimpleNamespace(run=lambda _: Half()))
sys.exit(cli.main(sys.argv[1:]))
"""
    done = subprocess.run([sys.executable, "-c", script, *options], capture_output=True, text=True, check=False)
    again = " ".join(["tokenmill build", *options])
    assert (done.returncode, done.stderr) == (130, f"tokenmill: interrupted. Run `{again}` to go on.\n")
