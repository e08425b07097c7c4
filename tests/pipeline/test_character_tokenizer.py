"""A build whose tokenizer is character-level BPE in the shape of Llama-2."""

import json
from pathlib import Path

import pytest
import tokenizers

import tokenmill
from tests.builders.character_tokenizers import SHAPES, TEXTS
from tests.builders.teams import cli
from tests.conftest import Project

DOCUMENTS = {
    "a.jsonl": [f"{n}  {text}" for n, text in enumerate(TEXTS)],
    "b.jsonl": ["▁ marks ▁▁", " ", "中文😀é\t\n", "a <s> b</s>", "a" * 3_000],
}


@pytest.mark.slow
def test_every_document_has_the_ids_of_tokenizers_and_the_dataset_verifies(tmp_path: Path) -> None:
    assert cli(Project(tmp_path), "init", "project").returncode == 0
    project = Project(tmp_path / "project")
    made = SHAPES["words"]
    (project.root / "llama.json").write_text(json.dumps(made), encoding="utf-8")
    for name, documents in DOCUMENTS.items():
        project.write(name, documents)
    params = project.root / "params.yaml"
    params.write_text(
        params.read_text(encoding="utf-8").replace("tokenizer: null", "tokenizer: {from: llama.json}"), encoding="utf-8"
    )
    project.set(run__engine="inline", encode__begin_of_document="<s>", encode__end_of_document="</s>")
    assert cli(project, "pin").returncode == 0
    project.build()
    peer = tokenizers.Tokenizer.from_str(json.dumps(made))
    peer.encode_special_tokens = True
    begin, end = (peer.token_to_id(text) for text in ("<s>", "</s>"))
    texts = [text for documents in DOCUMENTS.values() for text in documents]
    expected = [[begin, *peer.encode(text, add_special_tokens=False).ids, end] for text in texts]
    dataset = tokenmill.open(project.root / "data/tokens")
    assert [dataset[i].tolist() for i in range(len(dataset))] == expected
    done = cli(project, "verify")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "right"), done.stdout + done.stderr
    assert tokenmill.Tokenizer.load(project.root / "data/tokenizer").engine == "core"
