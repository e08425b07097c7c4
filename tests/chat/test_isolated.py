"""Templates that loop, or fill the memory: each ends, and what is rendered afterwards is right."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.builders.chats import LOOPS, canonical, encoded, encoder, told
from tokenmill import _core
from tokenmill.chat import isolated
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.errors import ChatError, UnitTimeoutError

_DOUBLED = (
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ ns.x | length }}"
)
_NESTED = (
    "{% set ns = namespace(x=['a'], y=['a']) %}"
    "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
)
_BIG = "{% set ns = namespace(x='a\tb c\n') %}{% for i in range(20) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
_OF_LOOPS = [
    LOOPS,
    "{% for i in range(99999) %}{% for j in range(99999) %}{{ j }}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if j == 1 %}{% endfor %}{% endfor %}",
    "{% set s %}" + LOOPS + "{% endset %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{% for x in [[[]]] recursive %}{{ loop([[[]], [[]]]) }}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | map('string') | join | length }}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | select('odd') | list | length }}{% endfor %}",
    "{{ range(99999) | map('batch', 2) | map('list') | list | length }}" + LOOPS,
    "{% set x = cycler(1, 2) %}" + LOOPS,
    "{{ (3 ** (4 ** (5 ** 6))) % 7 }}",
    "{{ (10 ** 4000000) * (10 ** 4000000) % 7 }}" * 50,
    "{{ '9' * 4000 | int }}{{ (7 ** 99999999) % 3 }}",
    "{{ (1).to_bytes(10 ** 9, 'big') | length }}" * 60,
    "{% for i in range(99999) %}{{ 'a' * 9999999 == 'a' * 9999998 ~ 'a' }}{% endfor %}",
    "{% for i in range(99999) %}{{ ('a' * 9999999).count('b') }}{% endfor %}",
    "{% for i in range(99999) %}{{ (['b', 'a'] * 999999) | sort | length }}{% endfor %}",
    "{% for i in range(99999) %}{{ (['b', 'a'] * 999999) | unique | list | length }}{% endfor %}",
    "{% for i in range(99999) %}{{ ('<' * 999999) | escape | length }}{% endfor %}",
    "{% for i in range(99999) %}{{ ('a ' * 99999) | title | wordwrap(1) | length }}{% endfor %}",
    "{% for i in range(99999) %}{{ ('http://a.b ' * 99999) | urlize | length }}{% endfor %}",
    _NESTED + "{{ ns.x == ns.y }}",
    _NESTED + "{{ ns.x in [ns.y] }}",
    _NESTED + "{{ [ns.x, ns.y] | sort | length }}",
    _NESTED + "{{ ns.x is eq(ns.y) }}",
    _NESTED + "{{ ns.x }}",
    _NESTED + "{{ ns.x | string }}",
    _NESTED + "{{ ns.x | tojson }}",
    _NESTED + "{{ ns.x | pprint }}",
    _NESTED + "{{ ns.x ~ '' }}",
    _NESTED + "{{ '%s' % ns.x }}",
    _NESTED + "{{ '{}'.format(ns.x) }}",
    "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} | length }}",
]
_OF_MEMORY = [
    *(_DOUBLED.replace("STEP", step) for step in ("ns.x ~ ns.x", "ns.x + ns.x", "ns.x * 2", "[ns.x, ns.x] | join")),
    *(_DOUBLED.replace("STEP", step) for step in ("ns.x | replace('a', 'aaa')", "ns.x.replace('a', 'aaa')")),
    *(_DOUBLED.replace("STEP", step) for step in ("'%s%s' % (ns.x, ns.x)", "'{0}{0}'.format(ns.x)")),
    _BIG + "{{ ns.x | wordwrap(1, wrapstring=ns.x) | length }}",
    _BIG + "{{ ns.x.expandtabs(99999) | length }}",
    _BIG + "{{ ns.x.translate({97: ns.x}) | length }}",
    _BIG + "{{ ns.x.replace('', ns.x) | length }}",
    _BIG + "{{ ns.x | replace('a', ns.x) | length }}",
    _BIG + "{{ ns.x.join(ns.x) | length }}",
    _BIG + "{{ ns.x | list | join(ns.x) | length }}",
    _BIG + "{{ ns.x | indent(99999) | length }}",
    _BIG + "{{ ([ns.x] * 999) | tojson(indent=10 ** 9) | length }}",
    _BIG + "{{ ns.x.split(' ') | map('center', 10 ** 6) | list | length }}",
    "{{ (10).to_bytes(10 ** 10, 'big') | length }}",
    "{{ 'a' * 10 ** 11 }}",
    "{{ [1] * 10 ** 11 }}",
    "{{ 'a'.center(10 ** 11) }}",
    "{{ 'a' | center(10 ** 11) }}",
    "{{ '%099999999999d' % 1 }}",
    "{{ '%*d' % (10 ** 11, 1) }}",
    "{{ '{:99999999999}'.format(1) }}",
    "{{ [1] | tojson(indent=10 ** 11) }}",
    "{{ [1] | batch(10 ** 11, 2) | list | length }}",
    "{{ [1] | slice(10 ** 11) | list | length }}",
]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """1 s for each conversation."""
    isolated.end_all()
    monkeypatch.setattr(isolated, "SECONDS_MAX", 1)
    yield
    isolated.end_all()


@pytest.mark.slow
@pytest.mark.parametrize("template", [*_OF_LOOPS, *_OF_MEMORY], ids=lambda template: template[-50:])
def test_a_template_ends_at_its_limit_of_time_or_memory(template: str, short: None) -> None:
    began = time.monotonic()
    with pytest.raises(ChatError) as caught:
        encoded(encoder(template="{{ messages[0].content[:0] }}" + template + "x", mask="all"), [told("user", "a")])
    assert time.monotonic() - began < 30  # of a second that the processor may give to others
    assert caught.value.index == 0


def test_the_conversation_that_takes_too_long_is_named(short: None) -> None:
    late = "{% if messages[0].content == 'b' %}" + LOOPS + "{% endif %}{{ messages[0].content }}"
    one = encoder(template=late, mask="all")
    with pytest.raises(ChatError, match=r"the chat template takes more than 1 s for it\. Look for a loop") as caught:
        encoded(one, *([told("user", content)] for content in "aab"))
    assert caught.value.index == 2
    assert encoded(one, [told("user", "a")]).texts[0].as_py() == "a"


def test_a_deadline_ends_a_template() -> None:
    one = encoder(template=LOOPS, mask="all")
    _core.deadline(0.5)
    try:
        with pytest.raises(UnitTimeoutError):
            encoded(one, [told("user", "a")])
    finally:
        _core.deadline(None)
    assert encoded(encoder(), [told("user", "a")]).texts[0].as_py() == "<|im_start|>user\na<|im_end|>\n"


def test_an_interrupt_ends_a_template() -> None:
    found: list[BaseException] = []

    def work() -> None:
        try:
            encoded(encoder(template=LOOPS, mask="all"), [told("user", "a")])
        except KeyboardInterrupt as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    _core.interrupt(True)
    thread.join(30)
    _core.interrupt(False)
    assert found


def test_a_process_that_ended_while_it_waited_is_replaced() -> None:
    one = encoder(mask="all")
    encoded(one, [told("user", "a")])
    isolated._idle[-1].process.kill()
    isolated._idle[-1].process.wait()
    encoded(one, [told("user", "a")])


def test_a_process_that_is_killed_at_work_is_an_error_of_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated._Process, "is_alive", lambda self: self.process.kill() is None)
    one = encoder(mask="all")
    with pytest.raises(ChatError, match="the process that renders it by the chat template ended with SIGKILL"):
        encoded(one, [told("user", "a")], [told("user", "a")])
        encoded(one, [told("user", "a")])


@pytest.mark.slow
def test_a_conversation_that_does_not_fit_into_memory_is_named() -> None:
    big = [told("user", "a" * 200_000_000)]
    with pytest.raises(ChatError, match=r"more memory than 1\.0 GB") as caught:
        encoded(encoder(mask="all"), [told("user", "a")], big)
    assert caught.value.index in {0, 1}


def test_a_process_that_renders_has_no_more_memory_than_its_worker_has_a_use_for() -> None:
    greedy = encoder(template="{% set x = 'a' * 400000000 %}{{ messages[0].content }}", mask="all")
    conversations = pa.array([canonical([told("user", "hi")])], pa.large_string())
    for limits, words in ((Limits(4 << 20, None), r"more memory than 455\.5 MB"), (UNBOUNDED, "")):
        greedy.hold_to(limits)
        with contextlib.closing(greedy.ask(conversations)) as request:
            if words:
                with pytest.raises(ChatError, match=words):
                    list(request.parts())
            else:
                assert [one.text for part in request.parts() for one in part] == ["hi"]


def test_a_process_that_renders_starts_no_threads_for_linear_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    isolated.end_all()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    encoded(encoder(mask="all"), [told("user", "a")])
    given = Path(f"/proc/{isolated._idle[-1].process.pid}/environ").read_bytes().split(b"\0")
    assert b"OPENBLAS_NUM_THREADS=1" in given


def test_threads_have_processes_of_their_own() -> None:
    one = encoder(mask="all")
    texts = {}

    def work(content: str) -> None:
        for i in itertools.count():
            texts[content] = encoded(one, [told("user", f"{content}{i}" * 1000)]).texts[0].as_py()
            if i == 20:
                return

    threads = [threading.Thread(target=work, args=(content,)) for content in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {content: f"<|im_start|>user\n{f'{content}20' * 1000}<|im_end|>\n" for content in "abcd"}


def test_a_request_that_is_closed_ends_its_process() -> None:
    isolated.end_all()
    request = encoder(template=LOOPS, mask="all").ask(pa.array([canonical([told("user", "a")])], pa.large_string()))
    process = request._process
    request.close()
    assert process is not None
    assert not process.is_alive()
    assert not isolated._idle


def test_a_request_is_sent_while_the_one_before_waits_to_be_encoded() -> None:
    isolated.end_all()
    isolated.start()
    one, [process] = encoder(mask="all"), isolated._idle
    asked = [one.ask(pa.array([canonical([told("user", "a")])], pa.large_string()))]
    asked[0].wait()
    asked.append(one.ask(pa.array([canonical([told("user", "b")])], pa.large_string())))
    assert [part.texts[0].as_py()[17] for request in asked for part in one.encode(request)] == ["a", "b"]
    assert list(isolated._idle) == [process]
