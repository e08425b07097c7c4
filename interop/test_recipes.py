"""The recipes are true: the settings of each page build a dataset, and its Python trains on it and compares batches."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parent.parent
TITLED = r'^```(?:yaml|python) title="(.*?)"\n(.*?)^```$'  # a file of the project
RECIPES = sorted((REPOSITORY / "docs/recipes").glob("*.md"))
# These ask for other versions than the lock has, so their pages are tested in an environment where they are installed with jinja2,
# msgspec, pyarrow, pydantic, pytest, pytest-timeout and zstandard: PYTHONPATH=. python -m pytest interop/test_recipes.py -k axolotl
OWN_ENVIRONMENT = ("axolotl", "llamafactory", "llmfoundry", "torchtitan")
WORDS = ["the", "cat", "dog", "sat", "on", "a", "mat", "log", "naïve", "café", "of", "and", "saw", "東京", "small"]


def block_of(page: Path, language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE))


def built(page: Path, folder: Path) -> None:
    """A project of 400 short documents or conversations in this folder, built with the settings of the page."""
    params = yaml.safe_load((REPOSITORY / "params.yaml").read_text("utf-8"))
    params["train_vocab"]["vocab_size"] = 300
    params["run"]["engine"] = "inline"
    for section, values in yaml.safe_load(block_of(page, "yaml")).items():
        params[section] |= values
    tokenmill = [str(REPOSITORY / ".venv/bin/python"), "-m", "tokenmill"]
    run([*tokenmill, "init", folder.name], folder.parent)
    (folder / "params.yaml").write_text(json.dumps(params), "utf-8")
    with (folder / "data/raw/all.jsonl").open("w", encoding="utf-8") as file:
        for i in range(400):
            file.write(json.dumps(row(i)) + "\n")
    run([*tokenmill, "build"], folder)


def row(i: int) -> dict[str, object]:
    chance = random.Random(i)
    question, answer = (f"{i}: {' '.join(chance.choices(WORDS, k=chance.randint(3, 120)))}" for _ in range(2))
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    pair = {"prompt": question, "chosen": answer, "rejected": f"{answer} not"}
    return {"id": str(i), "text": answer, "messages": messages, **pair}


def run(command: list[str], folder: Path) -> None:
    own = {"PYTHONPATH": str(REPOSITORY), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    offline = {"HF_HOME": f"{folder}/hf", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=folder, env=os.environ | own | offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_trains_on_what_the_dataset_holds(page: Path, tmp_path: Path) -> None:
    if page.stem in OWN_ENVIRONMENT:
        pytest.importorskip(page.stem)
    project = tmp_path / "project"
    built(page, project)
    for name, settings in re.findall(TITLED, page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        (project / name).write_text(settings, "utf-8")
    run([sys.executable, "-c", block_of(page, "python")], project)
    run(["sh", "-ec", block_of(page, "sh").replace("torchtitan.train", "interop.torchtitan_on_cpu")], project)
