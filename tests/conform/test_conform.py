"""`tokenmill conform`, and conform.py beside a tokenizer, find a library that gives other ids, whatever that library does."""

import ast
import builtins
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import tokenmill
from tests.builders.small_tokenizer import small_tokenizer, with_card
from tests.snapshots.shapes import SHAPES, write
from tokenmill import Tokenizer
from tokenmill.cli.main import main
from tokenmill.config.publish_params import LIBRARIES
from tokenmill.errors import TokenizerError
from tokenmill.features.conform.libraries import conform
from tokenmill.features.conform.program import compare as comparing
from tokenmill.features.conform.program.answer import Result
from tokenmill.features.conform.program.compare import compare, exit_code, lines_of, subject_of
from tokenmill.features.conform.program.consumer import Subject
from tokenmill.features.conform.program.consumers import CONSUMERS
from tokenmill.features.conform.texts import generated_texts, texts_of_tokens

HERE = ["tokenizers", "transformers", "transformers-slow", "tiktoken"]  # those of the development environment


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("made") / "tokenizer")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "tokenizer"))


def by_program(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code of conform.py, and its results by library."""
    command = [sys.executable, str(folder / "conform.py"), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, {one["consumer"]: one for one in json.loads(done.stdout)}


def swap_ranks(folder: Path) -> None:
    """Exchanges the ids of two tokens in the file that tiktoken reads, and nowhere else."""
    file = folder / "vocab.tiktoken"
    lines = [line.split() for line in file.read_bytes().splitlines()]
    lines[97][1], lines[98][1] = lines[98][1], lines[97][1]
    file.write_bytes(b"".join(b" ".join(line) + b"\n" for line in lines))


@pytest.mark.slow
def test_every_library_here_gives_the_same_ids(made: Path, tmp_path: Path) -> None:
    found = conform(made, HERE)
    assert [(one.consumer, one.verdict) for one in found] == [(name, "same") for name in HERE]
    assert all(one.compared and one.compared["text"] > 2_090 and one.compared["special"] > 2_090 for one in found)
    assert [one.compared["chat"] for one in found if one.compared] == [0, 50, 50, 0]
    [alone] = conform(made / "tokenizer.json", ["tiktoken"])
    assert (alone.verdict, alone.why) == ("cannot", "the tokenizer has no vocab.tiktoken")
    code, results = by_program(made, "--with", *HERE)
    assert code == 0
    assert [(name, one["verdict"], one["compared"]["special"]) for name, one in results.items()] == [
        (name, "same", 95) for name in HERE
    ]
    assert [one["compared"]["chat"] for one in results.values()] == [0, 12, 12, 0]


def test_a_file_that_one_library_reads_otherwise_is_found_by_the_command_and_by_the_program(folder: Path) -> None:
    swap_ranks(folder)
    tokenizers, tiktoken = conform(folder, ["tokenizers", "tiktoken"])
    assert tokenizers.verdict == "same" and tiktoken.verdict == "other"
    assert tiktoken.difference is not None and tiktoken.difference["found"] != tiktoken.difference["expected"]
    code, results = by_program(folder, "--with", "tokenizers", "tiktoken")
    assert code == 1
    assert results["tiktoken"]["difference"] == tiktoken.difference
    assert results["tiktoken"]["why"] == tiktoken.why
    assert results["tokenizers"]["verdict"] == "same"
    assert by_program(folder, "--with", "tokenizers")[0] == 0


def test_a_setting_of_transformers_that_changes_ids_is_found_by_the_program(folder: Path) -> None:
    config = folder / "tokenizer_config.json"
    changed = json.loads(config.read_text(encoding="utf-8")) | {"split_special_tokens": True}
    config.write_text(json.dumps(changed), encoding="utf-8")
    code, results = by_program(folder, "--with", "transformers")
    assert code == 1
    assert results["transformers"]["difference"]["given"] == "<|endoftext|>"
    assert results["transformers"]["difference"]["expected"] == [0]


def test_a_chat_template_that_changed_after_it_was_made_is_found_by_the_program(folder: Path) -> None:
    file = folder / "chat_template.jinja"
    file.write_text("Be brief.\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    code, results = by_program(folder, "--with", "transformers", "tokenizers")
    assert (code, results["tokenizers"]["verdict"], results["transformers"]["verdict"]) == (1, "same", "other")
    assert results["transformers"]["difference"]["kind"] == "chat"
    assert [one["role"] for one in results["transformers"]["difference"]["given"]] == ["system", "user", "assistant"]


def test_a_tokenizer_that_changed_after_it_was_made_is_found_by_the_command_and_by_the_program(folder: Path) -> None:
    file = folder / "tokenizer.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["model"]["merges"].pop()
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"golden\.json: made for the tokenizer"):
        conform(folder, ["tokenizers"])
    document["model"]["merges"] = document["model"]["merges"][:100]
    file.write_text(json.dumps(document), encoding="utf-8")
    code, results = by_program(folder, "--with", "tokenizers")
    assert (code, results["tokenizers"]["verdict"]) == (1, "other")


def test_a_chat_template_that_refuses_every_conversation_is_told(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no names') }}", encoding="utf-8")
    [found] = conform(folder, ["tokenizers"])
    assert found.verdict == "same"
    assert "conversations are left out: " in (said := capfd.readouterr().err) and "no names" in said


def test_a_normalizer_that_tiktoken_does_not_have_is_found(folder: Path) -> None:
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(document | {"normalizer": {"type": "NFC"}}), encoding="utf-8")
    with_card(folder, Tokenizer.load(folder))
    tokenizers, tiktoken = conform(folder, ["tokenizers", "tiktoken"])
    assert tokenizers.verdict == "same"
    assert tiktoken.difference is not None
    text = tiktoken.difference["given"]
    assert unicodedata.normalize("NFC", text) != text


FOREIGN = {
    "crashes": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "exits": "import sys\nsys.exit('no licence')",
    "loops": "while True: pass",
    "takes all memory": "bytearray(1 << 36)",
    "raises": "raise RuntimeError('built for another\\nmachine')",
    "lacks its functions": "",
    "prints": "print('{}')\nclass Kitoken:\n    from_file = None",
    "writes nothing and closes": "import os\nos._exit(0)",
}
WHY = {
    "crashes": "its process ended with SIGSEGV",
    "exits": "SystemExit: no licence",
    "loops": "it took more than 2 s",
    "takes all memory": "MemoryError: ",
    "raises": "RuntimeError: built for another machine",
    "lacks its functions": "AttributeError: module 'kitoken' has no attribute 'Kitoken'",
    "prints": "TypeError: 'NoneType' object is not callable",
    "writes nothing and closes": "its process ended with exit code 0",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FOREIGN)
def test_nothing_that_a_library_does_hangs_or_ends_the_command(
    what: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kitoken.py").write_text(FOREIGN[what], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(comparing, "SECONDS_MAX", 2 if what == "loops" else 60)
    found, *more = conform(made, ["kitoken", "tokenizers"])
    assert (found.verdict, found.why) == ("cannot", WHY[what])
    assert [one.verdict for one in more] == ["same"]


@pytest.mark.slow
def test_a_process_that_a_library_leaves_behind_is_ended(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sleep = f"[sys.executable, '-c', 'import time; time.sleep(1000)'], stdout=open({str(pipe)!r}, 'w')"
    code = f"import subprocess, sys\nsubprocess.Popen({sleep})"
    (tmp_path / "kitoken.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as reader:
        assert [one.verdict for one in conform(made, ["kitoken"])] == ["cannot"]
        os.set_blocking(reader.fileno(), True)
        assert reader.read() == b""  # at the end of the last process that could write


OTHER_IDS = """
class Tokenizer:
    from_file = classmethod(lambda cls, path: cls())
    def encode(self, text, add_special_tokens, encode_special_tokens, padding, truncation):
        self.ids = [7]
        return self
"""


def test_a_second_release_of_tokenizers_is_compared_from_a_folder_of_its_own(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizers").mkdir()
    (tmp_path / "tokenizers/__init__.py").write_text(OTHER_IDS, encoding="utf-8")
    (tmp_path / "tokenizers-1.0.0rc3.dist-info").mkdir()
    about = "Metadata-Version: 2.1\nName: tokenizers\nVersion: 1.0.0rc3\n"
    (tmp_path / "tokenizers-1.0.0rc3.dist-info/METADATA").write_text(about, encoding="utf-8")
    monkeypatch.setenv("NEXT_TOKENIZERS", str(tmp_path))
    one, other = conform(made, ["tokenizers", "tokenizers-1.0"])
    assert one.verdict == "same" and one.version != other.version
    assert (other.verdict, other.version) == ("other", "1.0.0rc3")
    assert other.difference is not None and other.difference["found"] == [7]
    monkeypatch.setenv("NEXT_TOKENIZERS", str(made))
    [absent] = conform(made, ["tokenizers-1.0"])
    assert (absent.verdict, absent.why) == ("not installed", f"NEXT_TOKENIZERS is {made}, where it is not")
    monkeypatch.delenv("NEXT_TOKENIZERS")
    [absent] = conform(made, ["tokenizers-1.0"])
    assert (absent.verdict, absent.why) == ("not installed", "NEXT_TOKENIZERS does not name its folder")


def test_a_file_that_cannot_be_made_for_a_library_is_said_with_the_reason(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sentencepiece.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    [found] = conform(folder, ["sentencepiece"])
    why = "cannot become a vocabulary of pieces with the same ids: it is no BPE of characters"
    assert (found.verdict, found.why) == ("cannot", why)


HOMES = {
    "vllm": ("vllm/tokenizers.py", "vllm/transformers_utils/tokenizer.py"),
    "sglang": ("sglang/srt/utils/hf_transformers_utils.py", "sglang/srt/hf_transformers_utils.py"),
}
"""Where releases of servers have the function get_tokenizer: the newer ones, and the earlier ones."""


@pytest.mark.parametrize("server", HOMES)
@pytest.mark.parametrize("i", [0, 1])
def test_a_server_is_asked_by_its_own_function_wherever_its_release_has_it(
    server: str, i: int, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / HOMES[server][i]
    home.parent.mkdir(parents=True)
    home.write_text("from transformers import AutoTokenizer\nget_tokenizer = AutoTokenizer.from_pretrained\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subject, program = subject_of(made), made / "conform.py"
    assert [one.verdict for one in compare(subject, [server], program)] == ["same"]
    assert server not in sys.modules
    home.write_text("import a_module_that_is_missing\n", "utf-8")
    [found] = compare(subject, [server], program)
    assert (found.verdict, found.why) == ("cannot", "ModuleNotFoundError: No module named 'a_module_that_is_missing'")


def test_a_text_that_a_library_fails_on_is_a_difference(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "class Kitoken:\n from_file = lambda _: Kitoken()\n def encode(self, text, special): return [1 // len(text)]"
    (tmp_path / "kitoken.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subject = Subject(str(made), None, {}, {"text": [("one", "a", [1]), ("two", "", [])]})
    [found] = compare(subject, ["kitoken"], made / "conform.py")
    assert (found.verdict, found.compared) == ("other", {"text": 1, "special": 0, "token": 0, "chat": 0})
    assert found.difference is not None
    assert found.difference["found"] == "ZeroDivisionError: integer division or modulo by zero"
    always = subject._replace(vectors={"text": [("two", "", []), ("three", "", [1])]})
    [found] = compare(always, ["kitoken"], made / "conform.py")
    assert (found.verdict, found.why) == ("cannot", "ZeroDivisionError: integer division or modulo by zero")


def test_the_command_says_what_it_found_and_refuses_names_that_are_none(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["conform", str(folder), "--with", "tokenizers"]) == 0
    said = capfd.readouterr()
    head, row = said.out.splitlines()
    assert head.split() == ["library", "version", "ids"]
    assert row.split()[0] == "tokenizers" and row.split()[2] == "same"
    assert said.err == f"conform: tokenizers {row.split()[1]}: started\n"
    assert main(["conform", str(folder), "--with", "tokenizers", "-q"]) == 0
    assert capfd.readouterr().err == ""
    swap_ranks(folder)
    assert main(["conform", str(folder), "--with", "tiktoken", "--json"]) == 1
    [found] = json.loads(capfd.readouterr().out)["result"]
    assert (found["consumer"], found["verdict"]) == ("tiktoken", "other")
    assert main(["conform", str(folder), "--with", "tiktokn"]) == 2
    assert "found 'tiktokn'; allowed: fastokens, gigatoken, kitoken, llama.cpp, " in capfd.readouterr().err
    assert main(["conform", str(folder / "vocab.tiktoken")]) == 2
    assert "vocab.tiktoken: expected a folder with tokenizer.json, or such a file." in capfd.readouterr().err
    (folder / "vocab.tiktoken").unlink()
    assert main(["conform", str(folder), "--with", "tiktoken"]) == 2
    assert "the tokenizer has no vocab.tiktoken" in capfd.readouterr().out
    assert main(["conform", str(folder), "--with", "llama.cpp", "--json"]) == 2
    [absent] = json.loads(capfd.readouterr().out)["result"]
    assert (absent["verdict"], absent["why"]) == ("not installed", "its package is llama-cpp-python")
    assert main(["conform", str(folder / "none")]) == 2
    assert "there is no such file" in capfd.readouterr().err
    assert main(["conform", "--with", "tokenizers", str(folder)]) == 2
    assert "] tokenizer [--with NAME" in " ".join(capfd.readouterr().err.split())


def test_the_exit_code_is_2_where_nothing_or_not_all_that_was_named_was_compared() -> None:
    same, other, cannot, absent = (Result("a", verdict) for verdict in ("same", "other", "cannot", "not installed"))
    assert exit_code([same, cannot, absent], are_named=False) == 0
    assert exit_code([same, cannot], are_named=True) == exit_code([same, absent], are_named=True) == 2
    assert exit_code([cannot, absent], are_named=False) == exit_code([], are_named=False) == 2
    assert exit_code([same, other, cannot], are_named=True) == exit_code([same, other], are_named=False) == 1
    assert lines_of([same, absent]) == [
        "library  version  ids",
        "a                 same",
        "a                 not installed",
    ]


def test_the_program_is_one_file_for_python_3_9_that_needs_nothing_else(made: Path) -> None:
    tree = ast.parse((made / "conform.py").read_text(encoding="utf-8"), feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {getattr(node, "module", None) or alias.name for node in imports for alias in node.names}
    assert {name.split(".")[0] for name in modules} <= {*sys.stdlib_module_names}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    shared = [alias.name for node in imports for alias in node.names]
    shared += [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    shared += [node.id for node in names if isinstance(node.ctx, ast.Store) and node.col_offset == 0]
    assert len(shared) == len({*shared})  # no module takes the name of another one
    local = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    local |= {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ExceptHandler) and node.name
    }
    local |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert {node.id for node in names} <= {*shared, *local, *vars(builtins), "__file__"}


TOY = """class Kitoken:
    from_file = classmethod(lambda cls, path: cls())
    encode = staticmethod(lambda text, special: [7])
"""


def test_one_module_adds_a_library_to_the_command_and_the_program(made: Path, tmp_path: Path) -> None:
    here, there = Path(tokenmill.__file__).parent, tmp_path / "tokenmill"
    linked_folders = (".", "features", "features/conform")
    for folder in linked_folders:
        (there / folder).mkdir()
        for path in (here / folder).iterdir():
            if path.relative_to(here).as_posix() not in (*linked_folders, "features/conform/program"):
                (there / folder / path.name).symlink_to(path)
    room = Path(shutil.copytree(here / "features/conform/program", there / "features/conform/program"))
    module = (room / "consumers/kitoken.py").read_text(encoding="utf-8").replace("kitoken", "toy")
    (room / "consumers/toy.py").write_text(module, encoding="utf-8")
    (tmp_path / "toy.py").write_text(TOY, encoding="utf-8")
    command = [sys.executable, "-m", "tokenmill", "conform", str(made), "--with", "toy"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[1].split()[:3]) == (1, ["toy", "unknown", "other"]), done.stderr


def test_publish_conform_allows_the_libraries_that_have_a_module() -> None:
    assert tuple(CONSUMERS) == LIBRARIES


@pytest.mark.parametrize("golden", [None, "[]", "1", '{"vectors": null}', '{"vectors": ["a"]}', '{"vectors": [{}]}'])
def test_the_program_without_its_golden_vectors_says_so(folder: Path, golden: str | None) -> None:
    (folder / "golden.json").unlink()
    if golden is not None:
        (folder / "golden.json").write_text(golden, encoding="utf-8")
    done = subprocess.run([sys.executable, str(folder / "conform.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "golden.json and card.json are needed beside this file" in done.stderr


def test_no_file_beside_the_program_is_imported_as_a_library(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizers.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    assert by_program(folder, "--with", "tokenizers")[1]["tokenizers"]["verdict"] == "same"
    assert not (tmp_path / "ran").exists()


def test_every_token_that_a_text_leads_to_is_in_a_text_that_is_compared(made: Path) -> None:
    tokenizer = Tokenizer.load(made)
    reached = {id for text in texts_of_tokens(tokenizer).values() for id in tokenizer.encode(text, special="allow")}
    never = {token for id, token in tokenizer.tokens.items() if id not in reached}
    in_no_utf8 = {bytes([byte]) for byte in (0xC0, 0xC1, *range(0xF5, 0x100))}
    assert in_no_utf8 <= never and len(never - in_no_utf8) < 10
    assert all(len(token) > 1 for token in never - in_no_utf8)


@pytest.mark.parametrize(
    "shape", ["bytes added", "bytes gpt2", "characters phi-3", "unigram", "wordlevel", "wordpiece"]
)
def test_a_file_with_two_ids_exchanged_gives_other_ids_for_a_text_that_is_compared(shape: str, tmp_path: Path) -> None:
    path = write(tmp_path, SHAPES[shape])
    tokenizer, whole = Tokenizer.load(path), path.read_text(encoding="utf-8")
    encoded = {text: tokenizer.encode(text, special="allow") for text in texts_of_tokens(tokenizer).values()}
    text_of = {id: text for text, ids in encoded.items() for id in ids}
    vocab = json.loads(whole)["model"]["vocab"]
    ids = sorted(vocab.values()) if isinstance(vocab, dict) else range(len(vocab))
    texts = vocab if isinstance(vocab, dict) else [text for text, _ in vocab]
    in_words = ["{}", "a{}", "{}a", "a{}a", " {}", "a {}"]
    for text in (form.format(one.removeprefix("##")) for one in texts for form in in_words):
        assert {*tokenizer.encode(text, special="allow")} <= text_of.keys(), text
    for i, j in pairwise(id for id in ids if id in text_of):
        document = json.loads(whole)
        exchanged = {i: j, j: i}
        for one in document["added_tokens"]:
            one["id"] = exchanged.get(one["id"], one["id"])
        if isinstance(vocab, dict):
            document["model"]["vocab"] = {text: exchanged.get(id, id) for text, id in vocab.items()}
        else:
            document["model"]["vocab"] = [vocab[exchanged.get(id, id)] for id in ids]
        judge = tokenizers.Tokenizer.from_str(json.dumps(document))
        assert judge.encode(text_of[i], add_special_tokens=False).ids != encoded[text_of[i]], (i, j)


def test_generated_texts_are_the_same_each_time_and_have_what_libraries_split_otherwise() -> None:
    texts = generated_texts(2_000, ["<|end|>"])
    assert texts == generated_texts(2_000, ["<|end|>"])
    whole = "".join(texts)
    whole.encode()
    assert len(set(texts)) > 1_800
    assert sum("<|end|>" in text for text in texts) > 200
    categories = {unicodedata.category(one) for one in whole}
    assert categories == {unicodedata.category(chr(i)) for i in range(sys.maxunicode + 1)} - {"Cs"}
    assert all(part in whole for part in ("'re", "’ll", "\r\n", "\n\n", "\u00a0", "\u3000", "1", "\x00", " " * 64))
    assert {os.linesep, "\u2028"} < set(whole)
