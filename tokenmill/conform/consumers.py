"""Compares the ids that libraries give for a tokenizer's files with those that it was made with.

    python conform.py [--with NAME ...] [--json]

This file lies beside a tokenizer, as conform.py. It needs Python 3.9 and no package but those that it compares. It reads texts and
their ids from golden.json, and asks every library that is installed here, each in a process of its own. Exit code 0: all ids are
the same, 1: a library gives other ids, 2: one that --with names is not installed or cannot be compared, or there is none.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import machinery, metadata, util
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

SECONDS_MAX = 600
"""The time limit for one library."""
MEMORY_BYTES_MAX = 8_000_000_000
"""The limit on the memory of one library."""

_ASK = "--ask"  # how this file is called in a library's process
_N_IDS_SHOWN = 5
_N_TRIED = 50  # texts, before a library that fails on each of them counts as one that cannot be compared
_ANSWER_BYTES_MAX = 1 << 20
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TIKTOKEN_CACHE_DIR": "", "TRANSFORMERS_VERBOSITY": "error"}

Encoders = dict[str, Callable[[Any], Iterable[int]]]
"""What a library gives ids for. text: a text in which special tokens are text. special: one in which they become their ids.
chat: the messages of a conversation."""

WORDS = {"text": "texts", "special": "texts with special tokens as ids", "chat": "conversations"}


class Cannot(Exception):
    """A library that cannot be compared, and why."""


class Subject(NamedTuple):
    """A tokenizer. `vectors`: lists of name, text or messages, and ids, by the names of `Encoders`. `pattern`: the regexes of
    its split; None: unknown."""

    folder: str
    pattern: list[str] | None
    special_tokens: dict[str, int]
    vectors: dict[str, list[tuple[str, Any, list[int]]]]


class Result(NamedTuple):
    """How a library compares. `verdict`: same, other, cannot or not installed. `compared`: numbers of equal ids by the names of
    `Encoders`. `why`: the first difference or the reason, in words. `difference`: the first one, with ids from `at` on."""

    consumer: str
    verdict: str
    version: str | None = None
    compared: dict[str, int] | None = None
    why: str | None = None
    difference: dict[str, Any] | None = None


def _tokenizers(library: Any, subject: Subject) -> Encoders:
    tokenizer = library.Tokenizer.from_file(str(_file(subject, "tokenizer.json")))
    is_next = not hasattr(tokenizer, "no_padding")  # from 1.0 on, each call has these settings
    if not is_next:
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def encode(text: str, as_text: bool) -> Any:
        if is_next:
            settings = {"encode_special_tokens": as_text, "padding": None, "truncation": None}
        else:
            settings = {}
            tokenizer.encode_special_tokens = as_text
        return tokenizer.encode(text, add_special_tokens=False, **settings).ids

    return {"text": lambda text: encode(text, True), "special": lambda text: encode(text, False)}


def _transformers(library: Any, subject: Subject, use_fast: bool = True) -> Encoders:
    return _of_transformers(
        library.AutoTokenizer.from_pretrained(subject.folder, use_fast=use_fast, local_files_only=True)
    )


def _transformers_slow(library: Any, subject: Subject) -> Encoders:
    return _transformers(library, subject, use_fast=False)


def _vllm(_library: Any, subject: Subject) -> Encoders:
    return _of_transformers(
        _first("vllm.tokenizers", "vllm.transformers_utils.tokenizer").get_tokenizer(subject.folder)
    )


def _sglang(_library: Any, subject: Subject) -> Encoders:
    home = _first("sglang.srt.utils.hf_transformers_utils", "sglang.srt.hf_transformers_utils")
    return _of_transformers(home.get_tokenizer(subject.folder))


def _first(name: str, former: str) -> Any:
    """A module, or the one that has its functions in earlier releases."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or "-"):
            raise
    return importlib.import_module(former)


def _of_transformers(tokenizer: Any) -> Encoders:
    return {
        "text": lambda text: tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"],
        "special": lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
        "chat": lambda said: tokenizer.apply_chat_template(said, tokenize=True, return_dict=True)["input_ids"],
    }


def _tiktoken(library: Any, subject: Subject) -> Encoders:
    file = _file(subject, "vocab.tiktoken")
    if subject.pattern is None or len(subject.pattern) != 1:
        raise Cannot(f"its split is one regex; this tokenizer has {len(subject.pattern or ()) or 'none'}")
    ranks = importlib.import_module("tiktoken.load").load_tiktoken_bpe(str(file))
    if sum(len(token) == 1 for token in ranks) < 256:
        raise Cannot("the vocabulary has no token for some bytes")
    made = library.Encoding(
        "conform", pat_str=subject.pattern[0], mergeable_ranks=ranks, special_tokens=subject.special_tokens
    )
    return {"text": made.encode_ordinary, "special": lambda text: made.encode(text, allowed_special="all")}


def _mistral_common(_library: Any, subject: Subject) -> Encoders:
    file = _file(subject, "tekken.json")
    made = importlib.import_module("mistral_common.tokens.tokenizers.tekken").Tekkenizer.from_file(file)
    return {"text": lambda text: made.encode(text, bos=False, eos=False)}


def _sentencepiece(library: Any, subject: Subject) -> Encoders:
    made = library.SentencePieceProcessor(model_file=str(_file(subject, "tokenizer.model")))
    return {"text": made.encode}


def _llama_cpp(library: Any, subject: Subject) -> Encoders:
    files = sorted(Path(subject.folder).glob("*.gguf"))
    if not files:
        raise Cannot("the tokenizer has no .gguf file")
    made = library.Llama(model_path=str(files[0]), vocab_only=True, verbose=False)
    return {
        "text": lambda text: made.tokenize(text.encode(), add_bos=False, special=False),
        "special": lambda text: made.tokenize(text.encode(), add_bos=False, special=True),
    }


def _fastokens(library: Any, subject: Subject) -> Encoders:
    made = library.Tokenizer.from_file(str(_file(subject, "tokenizer.json")))
    return {
        "text": lambda text: made.encode(text, split_special_tokens=True).ids,
        "special": lambda text: made.encode(text).ids,
    }


def _gigatoken(library: Any, subject: Subject) -> Encoders:
    made = library.Tokenizer(str(_file(subject, "tokenizer.json")))
    return {"special": made.encode}  # it has no other way


def _kitoken(library: Any, subject: Subject) -> Encoders:
    made = library.Kitoken.from_file(str(_file(subject, "tokenizer.json")))
    return {"text": lambda text: made.encode(text, False), "special": lambda text: made.encode(text, True)}


class Consumer(NamedTuple):
    """A library. `module`: what is imported. `make`: what makes its encoders. `folder`: the environment variable that names the
    folder where it is installed; None: it is imported as usual."""

    module: str
    make: Callable[[Any, Subject], Encoders]
    folder: str | None = None


CONSUMERS: dict[str, Consumer] = {
    "tokenizers": Consumer("tokenizers", _tokenizers),
    "tokenizers-1.0": Consumer("tokenizers", _tokenizers, folder="NEXT_TOKENIZERS"),
    "transformers": Consumer("transformers", _transformers),
    "transformers-slow": Consumer("transformers", _transformers_slow),
    "vllm": Consumer("vllm", _vllm),
    "sglang": Consumer("sglang", _sglang),
    "tiktoken": Consumer("tiktoken", _tiktoken),
    "mistral-common": Consumer("mistral_common", _mistral_common),
    "sentencepiece": Consumer("sentencepiece", _sentencepiece),
    "llama.cpp": Consumer("llama_cpp", _llama_cpp),
    "fastokens": Consumer("fastokens", _fastokens),
    "gigatoken": Consumer("gigatoken", _gigatoken),
    "kitoken": Consumer("kitoken", _kitoken),
}
"""The libraries by name. transformers-slow: with use_fast=False. tokenizers-1.0: a second release beside the one that is used."""


def compare(subject: Subject, names: Sequence[str]) -> list[Result]:
    """Asks these libraries, one after another, each in a process of its own, which can neither hang nor crash this one."""
    return [_compared(name, subject) for name in names]


def exit_code(results: Sequence[Result], are_named: bool) -> int:
    """0, 1 or 2, as at the head of this file. `are_named`: the libraries were named, so that each has to be compared."""
    verdicts = {one.verdict for one in results}
    if "other" in verdicts:
        return 1
    return 0 if "same" in verdicts and not (are_named and verdicts != {"same"}) else 2


def lines_of(results: Sequence[Result]) -> list[str]:
    """The table for people."""
    rows = [("library", "version", "ids", "")]
    for one in results:
        amount = ", ".join(f"{n:,} {WORDS[mode]}" for mode, n in (one.compared or {}).items() if n)
        rows.append((one.consumer, one.version or "", one.verdict, one.why or amount))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(f"{row[i]:<{width}}" for i, width in enumerate(widths)), row[3]]).rstrip() for row in rows]


def _compared(name: str, subject: Subject) -> Result:
    module, _, variable = CONSUMERS[name]
    folder = os.environ.get(variable) if variable else None
    if variable and not folder:
        return Result(name, "not installed", why=f"{variable} does not name its folder")
    if (machinery.PathFinder.find_spec(module, [folder]) if folder else util.find_spec(module)) is None:
        return Result(name, "not installed", why=f"{variable} is {folder}, where it is not" if folder else None)
    version = _version(module, folder)
    vectors = {mode: some for mode, some in subject.vectors.items() if some}
    request = json.dumps([name, subject._replace(vectors=vectors)])
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answered, tempfile.TemporaryFile() as said:
        asked.write(request.encode())
        asked.seek(0)
        process = subprocess.Popen(
            [sys.executable, __file__, _ASK],
            stdin=asked,
            stdout=answered,
            stderr=said,
            start_new_session=True,
            env={**os.environ, **_ENVIRONMENT},
        )
        try:
            code = process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return Result(name, "cannot", version, why=f"it took more than {SECONDS_MAX} s")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        answered.seek(0)
        try:
            found = json.loads(answered.read(_ANSWER_BYTES_MAX))
            return Result(name, found["verdict"], version, found["compared"], found["why"], found["difference"])
        except (ValueError, KeyError, TypeError):
            pass
        said.seek(max(0, said.seek(0, os.SEEK_END) - _ANSWER_BYTES_MAX))
        *_, last = ["", *said.read().decode(errors="replace").strip().splitlines()]
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Result(name, "cannot", version, why=f"its process ended with {how}{last and ': '}{last:.200}")


def _answer(name: str, subject: Subject) -> Result:
    """Compares one library, in its process."""
    module, make, variable = CONSUMERS[name]
    compared = dict.fromkeys(WORDS, 0)
    if variable:
        sys.path.insert(0, os.environ[variable])
    try:
        encoders = make(importlib.import_module(module), subject)
    except BaseException as error:  # noqa: BLE001 — of foreign code; a panic of Rust is no Exception
        return Result(name, "cannot", why=str(error) if isinstance(error, Cannot) else _words(error))
    for mode, encode in encoders.items():
        for vector, given, expected in subject.vectors.get(mode, ()):
            try:
                found: list[int] | str = [int(id) for id in encode(given)]
            except BaseException as error:  # noqa: BLE001 — as above
                found = _words(error)
                if not any(compared.values()) and _fails_always(encode, subject.vectors[mode]):
                    return Result(name, "cannot", why=found)
            if found != expected:
                pairs = enumerate(zip_longest(found, expected))
                at = next(i for i, (one, other) in pairs if one != other) if isinstance(found, list) else 0
                end = at + _N_IDS_SHOWN
                shown = found[at:end] if isinstance(found, list) else found
                why = f"{vector}: {given!r:.60}: from token {at} on: found {shown}, expected {expected[at:end]}"
                difference = {"name": vector, "kind": mode, "given": given, "at": at}
                return Result(
                    name, "other", None, compared, why, {**difference, "found": shown, "expected": expected[at:end]}
                )
            compared[mode] += 1
    if not any(compared.values()):
        return Result(name, "cannot", why="there is nothing that it can encode")
    return Result(name, "same", None, compared)


def _fails_always(encode: Callable[[Any], Iterable[int]], vectors: Sequence[tuple[str, Any, list[int]]]) -> bool:
    for _, given, _ in vectors[:_N_TRIED]:
        try:
            encode(given)
        except BaseException:  # noqa: BLE001 — as above
            continue
        return False
    return True


def _version(module: str, folder: str | None) -> str:
    package = {"llama_cpp": "llama-cpp-python"}.get(module, module)
    found = metadata.distributions(name=package, path=[folder] if folder else sys.path)
    return next((one.version for one in found), "unknown")


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def _file(subject: Subject, name: str) -> Path:
    path = Path(subject.folder, name)
    if not path.is_file():
        raise Cannot(f"the tokenizer has no {name}")
    return path


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MEMORY_BYTES_MAX if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _ask() -> None:
    """Answers the request on standard input. What a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    _limit_memory()
    here = Path(__file__).resolve().parent
    sys.path[:] = [one for one in sys.path if Path(one).resolve() != here]  # files here are no modules to import
    name, subject = json.load(sys.stdin)
    with answers:
        json.dump(_answer(name, Subject(*subject))._asdict(), answers)


def subject_of(folder: Path) -> Subject:
    """The tokenizer in a folder, with the texts and conversations of its golden.json, and each special token alone. Raises OSError,
    ValueError."""
    golden = json.loads((folder / "golden.json").read_bytes())
    card: Mapping[str, Any] = json.loads((folder / "card.json").read_bytes())
    special = card["special_tokens"]
    texts = [(one["name"], one["text"], one["ids"]) for one in golden["vectors"]]
    plain = [one for one in texts if not any(token in one[1] for token in special)]
    tokens = [(f"special/{id}", token, [id]) for token, id in special.items()]
    chats = [(one["name"], one["messages"], one["ids"]) for one in golden.get("conversations", [])]
    vectors = {"text": texts, "special": [*plain, *tokens], "chat": chats}
    return Subject(str(folder.resolve()), card["pattern"], special, vectors)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares the libraries for the tokenizer in this file's folder."""
    parser = argparse.ArgumentParser(
        prog="conform.py", description="Compares the ids of this tokenizer in the libraries that are installed."
    )
    parser.add_argument("--with", dest="names", nargs="+", choices=CONSUMERS, metavar="NAME", help="these libraries")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args(arguments)
    try:
        subject = subject_of(Path(__file__).parent)
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"golden.json and card.json are needed beside this file: {error}")
    results = compare(subject, asked.names or list(CONSUMERS))
    if asked.json:
        print(json.dumps([one._asdict() for one in results], indent=1))
    else:
        print("\n".join(lines_of(results)).encode(errors="backslashreplace").decode())
    return exit_code(results, bool(asked.names))


if __name__ == "__main__":
    if sys.argv[1:] == [_ASK]:
        _ask()
    else:
        sys.exit(main())
