"""What an import takes of a folder is pinned: the files beside its tokenizer.json as well."""

import json
import shutil
from pathlib import Path

import pytest
import tokenizers

from tests.builders.trained import TOKENIZER
from tokenmill import Tokenizer
from tokenmill.artifacts.golden_making import make_golden
from tokenmill.config.lockfile import read_pin, write_pin
from tokenmill.config.publish_params import TokenizerSource
from tokenmill.errors import VersionsError
from tokenmill.versioning.import_tokenizer import import_pinned, pin_anew, refuse_changed

ASKED = TokenizerSource.model_validate({"from": "folder"})


def folder(root: Path, config: dict[str, object]) -> Path:
    made = root / "folder"
    shutil.rmtree(made, ignore_errors=True)
    TOKENIZER.save(made)
    (made / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return made


def test_the_imported_tokenizer_has_the_tokens_of_the_folder_in_every_file(tmp_path: Path) -> None:
    folder(tmp_path, {"additional_special_tokens": ["<|im_start|>"], "eos_token": "<|im_end|>"})
    pin = pin_anew(tmp_path, ASKED)
    taken = import_pinned(tmp_path, pin, tmp_path / "taken")
    assert {"<|im_start|>", "<|im_end|>"} <= taken.special_tokens.keys()
    assert taken.digest == pin.digest == Tokenizer.load(tmp_path / "taken/tokenizer.json").digest != TOKENIZER.digest
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "taken/tokenizer.json"))
    assert library.token_to_id("<|im_end|>") == taken.special_tokens["<|im_end|>"]
    card = json.loads((tmp_path / "taken/card.json").read_text(encoding="utf-8"))
    assert card["special_tokens"] == taken.special_tokens
    assert "<|im_end|>" in (tmp_path / "taken/golden.json").read_text(encoding="utf-8")


def test_added_tokens_that_change_are_another_tokenizer_than_the_pinned_one(tmp_path: Path) -> None:
    folder(tmp_path, {"eos_token": "<|im_end|>"})
    pin = pin_anew(tmp_path, ASKED)
    refuse_changed(tmp_path, pin)
    folder(tmp_path, {"eos_token": "<|im_end|>", "image_token": "<|image|>"})
    with pytest.raises(VersionsError, match="not the tokenizer that"):
        refuse_changed(tmp_path, pin)
    folder(tmp_path, {"eos_token": "<|im_end|>", "model_max_length": 4096})  # which changes no token
    refuse_changed(tmp_path, pin)


def test_a_pin_of_an_earlier_version_holds_unless_the_folder_adds_tokens(tmp_path: Path) -> None:
    made = folder(tmp_path, {"eos_token": "<|endoftext|>"})
    pin = pin_anew(tmp_path, ASKED)
    write_pin(tmp_path, pin.model_copy(update={"beside_sha256": None}))
    earlier = read_pin(tmp_path)
    assert earlier is not None
    refuse_changed(tmp_path, earlier)
    (made / "added_tokens.json").write_text('{"<|im_end|>": 5000}')
    with pytest.raises(VersionsError, match="not the tokenizer that"):
        refuse_changed(tmp_path, earlier)


def test_an_import_says_what_the_files_beside_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(tmp_path, {"eos_token": "<|im_end|>", "tokenizer_class": "Qwen2Tokenizer"})
    pin_anew(tmp_path, ASKED)
    said = capsys.readouterr().err
    assert "folder: the files beside tokenizer.json add or change 1 token: <|im_end|> = 1200" in said
    assert "so does tokenmill: normalizer, pre_tokenizer" in said


def test_a_program_of_others_is_not_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path, {})
    (made / "golden.json").write_text(make_golden(made, TOKENIZER, {}).model_dump_json(), encoding="utf-8")
    (made / "card.json").write_text("{}", encoding="utf-8")
    evil = ("conform.py", "sitecustomize.py", ".git/config", "run.sh", "vocab.pkl", "additional_chat_templates/x.so")
    for name in evil:
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text("evil", encoding="utf-8")
    import_pinned(tmp_path, pin_anew(tmp_path, ASKED), tmp_path / "taken")
    kept = {path.name for path in made.iterdir() if path.suffix in (".json", ".tiktoken")}
    assert {path.name for path in (tmp_path / "taken").iterdir()} == {*kept, "conform.py"}
    assert "evil" not in (tmp_path / "taken/conform.py").read_text(encoding="utf-8")
    assert "5 files are not copied, as they are no files of a tokenizer: " in capsys.readouterr().err
    refuse_changed(tmp_path, pin_anew(tmp_path, ASKED))
