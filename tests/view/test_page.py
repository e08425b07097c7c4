"""The page in a browser: what it shows, by mouse and by keyboard, narrow and wide, light and dark."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.builders.browser import CHROMIUM, Browser, browser
from tests.view.conftest import Serve
from tokenmill.features.view.answering import Answering

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]

READY = "document.querySelectorAll('#list button').length"
TOKENS = "document.querySelectorAll('#tokens b').length"


@pytest.fixture(scope="module")
def open_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def page(open_browser: Browser) -> Iterator[Browser]:
    """The browser, which must have asked nobody else and complained of nothing when the test ends."""
    open_browser.requests.clear()
    open_browser.complaints.clear()
    yield open_browser
    open_browser.show("about:blank")  # asks nothing more of a server that ends
    assert open_browser.complaints == []
    assert {urlsplit(one).hostname for one in open_browser.requests if not one.startswith(("data:", "about:"))} <= {
        "127.0.0.1"
    }


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_nothing_is_wider_than_the_window(
    width: int, is_dark: bool, sequences: Path, serve: Serve, page: Browser
) -> None:
    url = serve(Answering(sequences, other=sequences.parent / "tokenizer")).url
    for part, ready in (
        ("page=items&set=1&i=2", TOKENS),
        ("page=vocabulary", "document.querySelectorAll('#rows tr').length"),
        ("page=encode&text=the+cat+" + "long" * 400, "document.querySelectorAll('#encoded b').length"),
    ):
        page.show(f"{url}#{part}", width, is_dark)
        page.wait_for(ready)
        assert page.value("document.documentElement.scrollWidth") <= width
        back = page.value("getComputedStyle(document.documentElement).backgroundColor")
        assert back == ("rgb(22, 24, 28)" if is_dark else "rgb(255, 255, 255)")


def test_hostile_text_is_text(texts: Path, serve: Serve, page: Browser) -> None:
    page.show(f"{serve(Answering(texts)).url}#page=items&start=40&i=40")
    page.wait_for(f"{READY} && {TOKENS}")
    assert page.value("document.images.length + document.querySelectorAll('main script').length") == 0
    assert "onerror=document.title='bad'>" in page.value("document.getElementById('tokens').textContent")
    assert r"\u202egnp.exe\x00" in page.value("document.getElementById('text').textContent")
    assert "\u202e" not in page.value("document.body.textContent")
    assert page.value("document.title").endswith("tokenmill view")


def test_boundaries_and_masks_are_marked(sequences: Path, serve: Serve, page: Browser) -> None:
    page.show(f"{serve(Answering(sequences)).url}#set=1&i=1")
    n_tokens = page.wait_for(TOKENS)
    assert 1 < page.value("document.querySelectorAll('#tokens .start').length") < 20
    assert 0 < page.value("document.querySelectorAll('#tokens .unlearned').length") < n_tokens
    assert page.value("document.querySelector('#tokens .special').textContent") == "<|im_start|>"
    page.value("document.querySelectorAll('#tokens .start')[1].click()")
    assert " · document 1 of sequence 1 begins " in page.value("document.getElementById('details').textContent")


def test_the_keyboard_goes_everywhere(texts: Path, serve: Serve, page: Browser) -> None:
    page.show(serve(Answering(texts)).url)
    page.wait_for(READY)
    title = "document.getElementById('title').textContent"
    page.wait_for(f"{title} === 'document 0' && {TOKENS}")  # the first one is open
    for key, number in (("ArrowDown", 1), ("j", 2), ("k", 1), ("ArrowUp", 0), ("ArrowUp", 0)):
        page.press(key)
        page.wait_for(f"{title} === 'document {number}'")
    page.value("document.querySelector('#tokens b').focus()")
    page.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert " · position 1 · 1 in the dataset" in page.value("document.getElementById('details').textContent")
    page.press("/")
    assert page.value("document.activeElement.id") == "q"
    page.press(*"dogs", "Enter")
    assert page.wait_for("document.querySelector('#list mark')?.textContent") == "dogs"
    page.wait_for(f"document.querySelector('#tokens .found') && {title} === 'document 42'")
    page.value("document.querySelector('#list button').click()")
    page.wait_for("document.activeElement.matches('#tokens .found')")
    assert page.value(title) == "document 42"
    assert page.value("document.activeElement === document.querySelector('#tokens .found')")


def test_long_lists_and_long_documents_go_on(texts: Path, serve: Serve, page: Browser) -> None:
    page.show(f"{serve(Answering(texts)).url}#page=vocabulary")
    page.wait_for("document.querySelectorAll('#rows tr').length === 100")
    page.value("document.getElementById('rows-more').click()")
    page.wait_for("document.querySelectorAll('#rows tr').length === 200")
    page.value("document.querySelector('#rows tr:last-child a').click()")
    page.wait_for(f"document.getElementById('by').value === 'token id' && {READY}")
    page.value("location.hash = 'page=items&i=68'")
    page.wait_for(f"{TOKENS} === 2000")
    page.value("document.getElementById('behind').click()")
    page.wait_for("document.getElementById('part').textContent.startsWith('tokens 2,000 to 3,000 of 3,001')")


def test_an_error_is_shown_where_it_is_seen(texts: Path, serve: Serve, open_browser: Browser) -> None:
    open_browser.show(f"{serve(Answering(texts)).url}#by=token&q=nothing+like+it")
    open_browser.wait_for("!document.getElementById('error').hidden")
    assert "no token has exactly the text 'nothing like it'" in open_browser.value(
        "document.getElementById('error').textContent"
    )


def test_documents_and_sequences_link_to_each_other(sequences: Path, serve: Serve, page: Browser) -> None:
    page.show(f"{serve(Answering(sequences)).url}#set=1&i=1", 400)
    link, title = "document.querySelector('#links li:nth-child(2) a')", "document.getElementById('title').textContent"
    text = page.wait_for(f"{link}?.textContent")
    assert text.startswith("document 1 of sequence 1: ")
    page.value(f"{link}.click()")
    page.wait_for(f"{title}.startsWith('document ') && {READY} && !document.getElementById('linked').hidden")
    assert text.endswith(": " + page.value("document.querySelector('#facts dd').textContent"))
    back = page.wait_for("document.querySelector('#links a[href*=\"set=1\"]')?.textContent")
    assert back == "document 1 of sequence 1 of sequences of the file sets"
    page.value("document.querySelector('#links a').click()")
    page.wait_for(f"{title} === 'sequence 1' && document.activeElement.matches('#tokens .start.found')")
    assert page.value("document.documentElement.scrollWidth") <= 400


def test_lists_are_sorted_and_long_documents_shown_whole(texts: Path, serve: Serve, page: Browser) -> None:
    page.show(serve(Answering(texts)).url)
    page.wait_for(f"{READY} && {TOKENS}")
    page.value("document.getElementById('sort').value = 'longest'")
    page.value("document.getElementById('sort').onchange()")
    page.wait_for(f"document.getElementById('title').textContent === 'document 68' && {TOKENS} === 2000")
    page.value("document.getElementById('all').click()")
    page.wait_for(f"{TOKENS} === 3001")
