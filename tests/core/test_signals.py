"""Calls of the core in real processes, which take signals, fork, and end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FunctionType

import pytest

from tests.builders.import_lock import HOLDS_THE_IMPORT_LOCK
from tests.times import PATIENCE_S
from tokenmill import calls

PREPARE = """
N_WORDS = 100
import pyarrow as pa
from tokenmill import _core
words = pa.array([" ".join(f"w{i * j}" for i in range(2000)) for j in range(N_WORDS)])
ones = pa.array([1] * len(words), pa.uint64())
steps = _core.patterns()["gpt2"]
counter = _core.Counter(steps)
letters = pa.record_batch({"id": pa.array(range(256), pa.uint32()), "token": [bytes([i]) for i in range(256)]})
none = pa.record_batch({name: pa.array([], pa.uint32()) for name in ("left", "right", "rank", "token")})
added = pa.record_batch({"id": pa.array([], pa.uint32()), "token": pa.array([], pa.binary()), "in_text": pa.array([], pa.bool_())})
encoder = _core.Encoder(steps, letters, none, added, False)
pair = pa.record_batch({
    name: pa.array([value], pa.uint32()) for name, value in (("left", 97), ("right", 98), ("rank", 0), ("token", 256))
})
tokens = [*(bytes([i]) for i in range(256)), b"ab"]
more = pa.record_batch({"id": pa.array(range(257), pa.uint32()), "token": tokens})
whole = _core.Encoder([], more, pair, added, False)
print("ready", flush=True)
"""
LONG = PREPARE.replace("N_WORDS = 100", "N_WORDS = 4000")
"""The same, with so many words that a call on them takes longer than a test waits before it sends a signal."""

CALLS = {
    "count": "while True: counter.update(words)",
    "encode": "while True: encoder.encode_batch(words, 2)",
    "encode one huge pre-token": "while True: whole.encode('ab' * 10**7)",
    "train from a counter": """many = _core.Counter([])
many.update([str(i) for i in range(10**6)])
_core.train(many, None, letters['token'].to_pylist(), 256, 10**6, 'count', 1, None, [], None, None, None)""",
    "train": "_core.train(words, ones, letters['token'].to_pylist(), 256, 10**6, 'count', 1, None, [], None, None, None)",
}


def test_ctrl_c_while_modules_are_imported_is_one_line() -> None:
    interrupted = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "tokenmill.cli.main":
            raise KeyboardInterrupt
from tokenmill.__main__ import program
sys.meta_path.insert(0, Interrupted())
sys.exit(program())
"""
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "tokenmill: interrupted.\n")


ENDS = pytest.mark.parametrize(
    ("name", "code", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
)


@ENDS
def test_a_signal_that_comes_while_an_object_closes_itself_is_not_lost(name: str, code: int, word: str) -> None:
    lost = f"""
import os, signal, sys, time
from tokenmill.cli import main as cli
class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
def run(asked):
    Closing()
    time.sleep(60)
cli.build._status = run
sys.exit(cli.main(["status"]))
"""
    done = subprocess.run([sys.executable, "-c", lost], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (code, f"tokenmill: {word}.\n")


@pytest.mark.parametrize("second", ["SIGINT", "SIGTERM", "SIGHUP"])
@ENDS
def test_a_second_signal_while_the_end_is_told_changes_nothing(name: str, code: int, word: str, second: str) -> None:
    twice = f"""
import os, signal, sys, time
from tokenmill.cli import main as cli, signals
def run(asked):
    os.kill(os.getpid(), signal.{name})
    time.sleep(60)
def print_error(*given):
    os.kill(os.getpid(), signal.{second})
    time.sleep(0.1)
    print_it(*given)
signals.print_error, print_it = print_error, signals.print_error
cli.build._status = run
sys.exit(cli.main(["status", "--json"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", twice], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (code, f"tokenmill: {word}.\n")
    assert json.loads(done.stdout)["error"]["code"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_during_the_wait_for_the_import_lock_leaves_it_free(name: str) -> None:
    waiting = (
        HOLDS_THE_IMPORT_LOCK.replace("NUMBER", name)
        + """
from tokenmill.cli import main as cli
cli.build._status = lambda asked: import_meanwhile()
sys.exit(cli.main(["status"]))
"""
    )
    done = subprocess.run([sys.executable, "-c", waiting], capture_output=True, text=True, check=False)
    word = "interrupted" if name == "SIGINT" else "terminated"
    assert (done.returncode, done.stdout, done.stderr) == (
        130 if name == "SIGINT" else 143,
        "free\n",
        f"tokenmill: {word}.\n",
    )


def test_a_second_signal_while_one_is_put_off_is_put_off_too(monkeypatch: pytest.MonkeyPatch) -> None:
    handled, sent = list[int](), list[int]()
    handler = calls.OutsideImports(lambda number, _frame: handled.append(number))

    def begin(send: Callable[[], None], _arguments: tuple[()]) -> None:
        handler(signal.SIGTERM, sys._getframe(1))  # arrives while the first is put off
        handler(signal.SIGINT, sys._getframe(1))
        send()

    monkeypatch.setattr(calls._thread, "start_new_thread", begin)
    monkeypatch.setattr(calls.os, "kill", lambda _process, number: sent.append(number))

    def interrupted() -> None:
        handler(signal.SIGTERM, sys._getframe())

    code = interrupted.__code__.replace(co_filename="<frozen importlib._bootstrap>")
    FunctionType(code, globals(), closure=interrupted.__closure__)()
    assert (handled, sent) == ([], [signal.SIGTERM, signal.SIGINT])
    handler(signal.SIGTERM, sys._getframe())
    assert handled == [signal.SIGTERM]


def test_a_command_that_waits_for_ever_after_a_signal_is_ended() -> None:
    waiting = """
import os, signal, sys, threading
from tokenmill.cli import main as cli, signals
signals._LAST_S = 0.3
def run(asked):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        threading.Event().wait()
cli.build._status = run
sys.exit(cli.main(["status"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", waiting], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (143, "tokenmill: terminated.\n")


@ENDS
@pytest.mark.parametrize("error", ["TokenmillError", "RuntimeError"])
def test_a_signal_that_a_library_takes_for_an_error_of_its_own_is_one_line(
    name: str, code: int, word: str, error: str
) -> None:
    swallowed = f"""
import os, signal, sys
from tokenmill.cli import main as cli
from tokenmill.errors import TokenmillError
def run(asked):
    try:
        os.kill(os.getpid(), signal.{name})
    except BaseException:
        raise {error}("params.yaml is not there") from None
cli.build._status = run
sys.exit(cli.main(["status"]))
"""
    done = subprocess.run([sys.executable, "-c", swallowed], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, f"tokenmill: {word}.\n")


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_the_call_with_keyboard_interrupt(call: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", (LONG if "words" in CALLS[call] else PREPARE) + CALLS[call]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith(("KeyboardInterrupt", "KeyboardInterrupt: the call was stopped"))


BESIDE = """
import signal, threading, time
class OutOfTime(Exception): pass
def end(*_): raise OutOfTime
def in_main(handler, call):
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        while True:
            call()
    except Exception as error:
        print(type(error).__name__)
"""
HANDLERS = {
    "raises its own": ("in_main(end, lambda: encoder.encode_batch(words, 1))", "OutOfTime"),
    "comes while this thread waits for another": ("in_main(end, lambda: encoder.encode_batch(words, 2))", "OutOfTime"),
    "encodes with the same encoder": (
        """
def encode(*_):
    assert encoder.encode_batch(words[:1], 2).equals(expected)
    end()
expected = encoder.encode_batch(words[:1], 1)
in_main(encode, lambda: encoder.encode_batch(words, 2))
""",
        "OutOfTime",
    ),
    "asks the same counter": (
        "in_main(lambda *_: counter.memory_bytes(), lambda: counter.update(words))",
        "CountsError",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_handler_of_a_signal_does_ends_the_call_as_python_has_it(handler: str) -> None:
    call, raised = HANDLERS[handler]
    done = subprocess.run(
        [sys.executable, "-c", LONG + BESIDE + call], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"ready\n{raised}\n", "")


@pytest.mark.slow
def test_a_signal_is_handled_while_another_thread_is_in_a_call() -> None:
    call = """
enough = threading.Event()
def encode():
    while not enough.is_set():
        encoder.encode_batch(words, 1)
thread = threading.Thread(target=encode)
thread.start()
in_main(end, lambda: time.sleep(0.01))
enough.set()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", LONG + BESIDE + call], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\nOutOfTime\n", "")


def test_a_forked_process_has_threads_of_its_own() -> None:
    fork = """
import os, signal
expected = encoder.encode_batch(words[:100], 1)
for _ in range(20):
    assert encoder.encode_batch(words[:100], 3).equals(expected)
    forked = os.fork()
    if not forked:
        signal.alarm(20)
        same = all(encoder.encode_batch(words[:100], 3).equals(expected) for _ in range(3))
        os._exit(0 if same else 1)
    assert encoder.encode_batch(words[:100], 3).equals(expected)
    assert os.waitpid(forked, 0)[1] == 0
"""
    # From 3.12 on Python warns of any fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PREPARE + fork]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGABRT"])
def test_a_signal_for_which_the_process_waits_is_left_to_it(name: str) -> None:
    wait = f"""
import os, signal
for _ in range(20):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}])
    encoder.encode_batch(words[:100], 3)
    os.kill(os.getpid(), signal.{name})
    assert signal.sigwait([signal.{name}]) == signal.{name}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.{name}])
    encoder.encode_batch(words[:100], 3)
"""
    alone = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # numpy's threads would take it
    command = [sys.executable, "-c", PREPARE + wait]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=alone)
    assert (done.returncode, done.stderr) == (0, "")


IN_CALLS = """
import sys, threading, time
stop, texts, ids = threading.Event(), ["a b"], pa.array([[1, 2]], pa.list_(pa.uint32()))
def encode():
    encoder.count_tokens(texts, 1)
    encoder.decode_batch(ids, 1)
def train():
    from tokenmill import Counter, train_vocab
    counter = Counter(pattern="gpt2")
    counter.update(texts)
    train_vocab(counter, vocab_size=256, pattern="gpt2")
def calls():
    while not stop.is_set():
        WORK()
threads = [threading.Thread(target=calls, daemon=True) for _ in range(2)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("work", ["encode", "train"])
def test_a_process_ends_whatever_its_daemon_threads_are_doing(work: str) -> None:
    end = """
WORK()
for thread in threads:
    thread.start()
time.sleep(0.05)
sys.exit(7)
"""
    script = (PREPARE + IN_CALLS + end).replace("WORK", work)
    for _ in range(6):  # where it went wrong, it did in some of 12 processes
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.slow
def test_who_waits_for_a_daemon_thread_at_the_end_does_not_wait_for_ever() -> None:
    wait = """
import atexit
def end():
    stop.set()
    for thread in threads:
        thread.join(30)
    print([thread.is_alive() for thread in threads])
atexit.register(end)  # before the core's own function, which is called first
"""
    begin = """
for thread in threads:
    thread.start()
time.sleep(0.05)
"""
    script = wait + PREPARE + IN_CALLS.replace("WORK", "encode") + begin
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n[False, False]\n", "")


def test_threads_that_cannot_be_begun_are_an_error_that_says_what_to_do() -> None:
    none = """
from tokenmill.errors import ParamsError
try:
    encoder.encode_batch(words, 2)
except ParamsError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", PREPARE + none],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=os.environ | {"RUST_MIN_STACK": str(2**60)},  # no thread has such a stack
    )
    assert "threads: one could not be begun" in done.stdout
    assert "Ask for fewer" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
