"""A build writes the report as JSON, metrics, plots and a page, and its gates fail it."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.builders.browser import CHROMIUM, browser
from tests.conftest import Project
from tokenmill.report.page import is_current
from tokenmill.tokenizer.tokenizer import Tokenizer

GERMAN = ["die Katze sitzt auf der Matte", "der Hund sitzt auf dem Holz", "die Katze und der Hund"]
ENGLISH = ["the cat sat on the mat", "the dog sat on the log <|endoftext|>", "the cat and the dog"] * 4


def write(project: Project, name: str, lang: str, texts: list[str]) -> None:
    path = project.root / "data/raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"id": f"{name}-{i}", "text": text, "lang": lang} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def two_languages(project: Project) -> Project:
    for path in (project.root / "data/raw").iterdir():
        path.unlink()
    write(project, "web/en.jsonl", "en", ENGLISH)
    write(project, "web/de.jsonl", "de", GERMAN)
    write(project, "c.jsonl", "en", ["12 <>&", ""])
    project.set(validate__language_column="lang", run__report_page=True)
    return project


def report_of(project: Project) -> Any:
    return json.loads((project.root / "data/report/report.json").read_text(encoding="utf-8"))


def test_the_report_has_the_numbers_of_the_dataset(two_languages: Project) -> None:
    project = two_languages
    project.set(validate__references=["data/tokenizer", "data/tokenizer/tokenizer.json"])
    project.build()
    report = report_of(project)
    measures = report["measures"]
    tokenizer = Tokenizer.load(project.root / "data/tokenizer")
    encoded = {lang: [tokenizer.encode(text) for text in texts] for lang, texts in (("de", GERMAN), ("en", ENGLISH))}
    for lang, texts in (("de", GERMAN), ("en", [*ENGLISH, "12 <>&"])):
        n_bytes, n_tokens = sum(map(len, texts)), sum(len(tokenizer.encode(text)) for text in texts)
        assert measures["bytes_per_token"]["lang"][lang] == pytest.approx(n_bytes / n_tokens, abs=1e-6)
    words = [word for text in GERMAN for word in re.findall(r"\w+", text)]
    n_tokens_of_words = [len(tokenizer.encode(f" {word}")) for word in words]
    assert measures["tokens_per_word"]["lang"]["de"] == pytest.approx(sum(n_tokens_of_words) / len(words), abs=1e-6)
    assert measures["words_whole_share"]["lang"]["de"] == pytest.approx(
        n_tokens_of_words.count(1) / len(words), abs=1e-6
    )
    files = (project.root / "data/tokens").rglob("*.parquet")
    counts = Counter(id for path in files for ids in pq.read_table(path)["input_ids"].to_pylist() for id in ids)
    learned = [
        id for id in tokenizer.ids if len(tokenizer.token_bytes(id)) > 1 and id not in tokenizer.special_tokens.values()
    ]
    assert measures["unused_tokens"] == sum(1 for id in learned if not counts[id])
    assert measures["unused_tokens_share"] == pytest.approx(measures["unused_tokens"] / len(learned), abs=1e-6)
    n_web = sum(len(ids) + 1 for of in encoded.values() for ids in of)  # each with its end
    web_bytes = sum(map(len, [*GERMAN, *ENGLISH]))
    assert measures["bytes_per_token"]["source"] == {
        "(root)": pytest.approx(6 / (len(tokenizer.encode("12 <>&")) + 2), abs=1e-6),
        "web": pytest.approx(web_bytes / n_web, abs=1e-6),
    }
    assert report["special_texts"] == {"web": {"<|endoftext|>": 4}}
    assert report["lengths"]["n_documents"] == 17
    assert (
        list(report["references"]) == ["data/tokenizer", "data/tokenizer/tokenizer.json"]
        or len(report["references"]) == 2
    )
    sampled = [row for row in report["groups"] if row["of"] == "sample"]
    for row in sampled:
        same = [other for other in sampled if (other["kind"], other["name"]) == (row["kind"], row["name"])]
        assert len(same) == 3 and len({one["bytes_per_token"] for one in same}) == 1
    assert report["by_vocab_size"][-1]["vocab_size"] == tokenizer.vocab_size
    metrics = json.loads((project.root / "data/report/metrics.json").read_text(encoding="utf-8"))
    assert len(metrics) <= 12
    assert metrics["gini_languages"] == measures["gini"]["languages"] > 0


@pytest.mark.slow
def test_the_same_dataset_gives_the_same_bytes_and_dvc_shows_the_plots(two_languages: Project) -> None:
    project = two_languages
    project.build()
    before = project.outputs()
    project.build("--force", "--only", "validate")
    assert project.outputs() == before
    done = project.run("dvc", "plots", "show", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert not shown.get("errors"), shown["errors"]
    assert {Path(name).name for name in shown["data"]} == {"vocab_size.csv", "ranks.csv", "groups.csv", "lengths.csv"}
    for command in (("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")):
        assert project.run("git", *command).returncode == 0
    project.set(train_vocab__vocab_size=262)
    project.build()
    done = project.run("dvc", "plots", "diff", "--json", "HEAD")
    assert done.returncode == 0, done.stderr
    (plot,) = json.loads(done.stdout)["data"]["data/report/plots/vocab_size.csv"]
    assert set(plot["revisions"]) == {"HEAD", "workspace"}


@pytest.mark.slow
def test_the_page_is_written_again_where_it_is_missing_or_of_another_report(two_languages: Project) -> None:
    project = two_languages
    project.build()
    page = project.root / "data/report/report.html"
    text = page.read_text(encoding="utf-8")
    assert text.count("<script") == 1 and not re.search(r"""(src|href)=["'](?!data:|#)""", text)
    assert [text.count(f'id="{section}"') for section in re.findall('href="#([^"]+)"', text)] == [1] * text.count(
        'href="#'
    )
    assert '<b>1 thing to look at:</b> <a href="#special-texts">4 texts of special tokens in the sample</a>.' in text
    assert "12 <>&" not in text
    assert "<td>datasets, polars, pyarrow</td><td>PyTorch, torchdata, Grain, LitGPT</td>" in text
    for change in (page.unlink, lambda: page.write_text(re.sub("[0-9a-f]{64}", "0" * 64, text), encoding="utf-8")):
        change()
        assert not is_current(project.root)
        assert set(project.actions(project.build()).values()) == {"up to date"}
        assert is_current(project.root)


@pytest.mark.slow
def test_a_broken_gate_fails_the_build_with_a_table_and_leaves_the_page(two_languages: Project) -> None:
    project = two_languages
    project.set(
        validate__gates=[
            "bytes_per_token.overall >= 9",
            "bytes_per_token.lang.de > 1",
            "gini.languages >= 0.9 * published",
        ]
    )
    done = project.cli("build")
    assert done.returncode == 2
    assert "error[TM503]: validate.gates: 1 of 3 gates do not hold:" in done.stderr
    assert re.search(r"bytes_per_token\.overall >= 9 +>= 9 +\d\.\d+\n", done.stderr)
    assert "does not hold" in (project.root / "data/report/report.html").read_text(encoding="utf-8")
    outcomes = json.loads((project.root / "data/report/gates.json").read_text(encoding="utf-8"))
    assert [one["holds"] for one in outcomes] == [False, True, True]
    assert outcomes[2]["note"] == "not compared: no version is published yet"
    assert "validate" in project.cli("status").stdout
    project.set(validate__gates=["bytes_per_token.overall >= 1", "gini.languages <= 1 * published"])
    done = project.build()
    assert "all 2 gates hold" in done.stderr
    assert "gate 'gini.languages <= 1 * published': not compared: no version is published yet" in done.stderr


@pytest.mark.slow
def test_a_gate_compares_with_the_highest_published_version(two_languages: Project) -> None:
    project = two_languages
    project.build()
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (
        ("add", "-A"),
        (*identity, "commit", "-qm", "one"),
        (*identity, "tag", "-a", "dataset@v1.2.0", "-m", "one"),
    ):
        assert project.run("git", *command).returncode == 0
    found = report_of(project)["measures"]["bytes_per_token"]["overall"]
    project.set(validate__gates=["bytes_per_token.overall >= 1.1 * published", "documents == 1 * published"])
    done = project.cli("build")
    assert done.returncode == 2
    assert f">= {1.1 * found:.6g}" in done.stderr and "of dataset@v1.2.0" in done.stderr
    project.set(validate__gates=["bytes_per_token.overall == 1 * published", "documents == 1 * published"])
    assert "all 2 gates hold" in project.build().stderr
    page = (project.root / "data/report/report.html").read_text(encoding="utf-8")
    assert f"<b>{found:.3f}</b><span>bytes per token</span>\n<span>{found:.3f} in dataset@v1.2.0</span>" in page
    assert "<th>value</th><th>dataset@v1.2.0</th>" in page


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gates": ["bytes_per_tokn.overall >= 1"]}, "did you mean bytes_per_token?"),
        ({"gates": ["bytes_per_token.lang.de >= 1"], "language_column": None}, "language_column, which is null"),
        ({"gates": ["bytes_per_token.lang.dd >= 1"]}, "Did you mean bytes_per_token.lang.de?"),
        ({"language_column": "language"}, "'language' was found in no file"),
        ({"references": ["nowhere/tokenizer.json"]}, "validate.references: nowhere/tokenizer.json: "),
    ],
)
def test_what_is_not_there_is_one_clear_error(two_languages: Project, changes: dict[str, Any], said: str) -> None:
    two_languages.set(**{f"validate__{key}": value for key, value in changes.items()})
    done = two_languages.cli("build")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_chromium_opens_the_page_without_an_error_sorts_its_tables_and_lets_it_request_nothing(
    two_languages: Project, tmp_path: Path
) -> None:
    project = two_languages
    project.set(validate__references=["data/tokenizer"])
    project.build()
    path = project.root / "data/report/report.html"
    asking = path.with_name("asking.html")
    text = path.read_text(encoding="utf-8")
    asking.write_text(text.replace("<h1>", '<img src="http://127.0.0.1:9/a.png"><h1>'), encoding="utf-8")
    with browser(tmp_path / "browser") as page:
        page.show(path.as_uri())
        page.wait_for("document.readyState === 'complete' && document.title.includes('report')")
        assert page.value("document.querySelectorAll('svg').length") >= 4
        table = "document.querySelector('#groups ~ .wide table')"
        column = f"[...{table}.tBodies[0].rows].map((row) => Number(row.cells[3].textContent))"
        numbers = page.value(column)
        for is_first in (True, False):
            page.value(f"{table}.tHead.rows[0].cells[3].click()")
            assert page.value(column) == sorted(numbers, reverse=is_first)
        assert page.complaints == []
        page.show(asking.as_uri())
        page.wait_for("document.readyState === 'complete' && document.title.includes('report')")
        assert any("Content Security Policy" in line for line in page.complaints)
