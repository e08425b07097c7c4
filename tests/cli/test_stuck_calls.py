"""A signal ends a command whose threads are in calls that hear none. Each call here would take a minute or more."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY
from tests.times import PATIENCE_S

SCRIPT = """
import hashlib, json, os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from tokenmill import _core
from tokenmill.cli import main as cli
from tokenmill.tokenizer.tokenizers_engine import TokenizersEngine

def matches():
    _core.split([r"(?:(?!.*Z)a){0,9}"], "a" * 200_000_000)

def document():
    document = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
        "decoder": None, "truncation": None, "padding": None,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "unk_token": "a"}}
    engine = TokenizersEngine(document, json.dumps(document).encode(), "here")
    engine._growth = 0  # so that the text is not looked at before
    engine.encode("ab" * 100_000_000)

def digest():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

def in_a_worker(call):
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        try:
            future.result()
        finally:
            _core.interrupt(True)

def run(asked):
    print("stuck", file=sys.stderr, flush=True)
    CALL

cli.build._status = run
sys.exit(cli.main(["status", "--json"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize(
    "call", ["matches()", "document()", "digest()", "in_a_worker(matches)", "in_a_worker(document)"]
)
def test_a_signal_ends_a_command_that_is_stuck_in_one_call(call: str, number: int, code: int, word: str) -> None:
    command = [sys.executable, "-c", SCRIPT.replace("CALL", call)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "stuck\n"
            time.sleep(1)
            process.send_signal(number)
            printed, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, said) == (code, f"tokenmill: {word}.\n")
    assert json.loads(printed)["ok"] is False


def test_a_signal_of_a_forked_process_is_not_taken_for_one_of_its_parent() -> None:
    script = """
import os, signal, sys, time
from tokenmill.cli import main as cli
from tokenmill.cli.answer import text
def run(asked):
    child = os.fork()
    if not child:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(9)
        except BaseException:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    time.sleep(1.5)
    return text({}, "goes on")
cli.build._status = run
sys.exit(cli.main(["status"]))
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=REPOSITORY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")
