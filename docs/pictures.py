"""Takes the pictures of the first page: `python -m docs.pictures` builds two small projects and writes docs/assets/*.webp.

The report is that of the sample text. `tokenmill view` shows a packed sequence of `--example chat`. This needs Chromium.
"""

import base64
import contextlib
import tempfile
from pathlib import Path
from threading import Thread

from tests.builders import in_process
from tests.builders.browser import Browser, browser
from tests.conftest import Project
from tokenmill.corpus.sample import make_sample
from tokenmill.features.view.dataset_view import DatasetView
from tokenmill.features.view.server import ViewServer

ASSETS = Path(__file__).parent / "assets"
_WIDTH, _HEIGHT = 900, 540
_QUALITY = 80  # 40 kB a picture; as PNG they are 70 to 120 kB


def main() -> None:
    """Writes each picture, light and dark."""
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder) / "browser") as page:
        sample = _project(Path(folder) / "my-tokens")
        make_sample(sample.root / "data/raw")
        sample.build()
        report = sample.root / "data/report/report.html"
        _take(page, "report", report.as_uri(), "document.readyState == 'complete'")
        chat = _project(Path(folder) / "my-chats", "--example", "chat")
        chat.build()
        with contextlib.chdir(chat.root), ViewServer(DatasetView(Path("data/tokens")), 0) as server:
            Thread(target=server.serve_forever).start()
            _take(page, "view", f"{server.url}#page=items&set=1&i=2", "document.querySelectorAll('#tokens b').length")
            server.shutdown()


def _project(root: Path, *options: str) -> Project:
    done = in_process.tokenmill(root.parent, "init", str(root), *options)
    assert done.returncode == 0, done.stderr
    project = Project(root)
    project.set(run__engine="inline")
    return project


def _take(page: Browser, name: str, url: str, ready: str) -> None:
    page.call("Emulation.setScrollbarsHidden", hidden=True)
    for theme in ("light", "dark"):
        page.show(url, _WIDTH, is_dark=theme == "dark")
        page.wait_for(ready)
        clip = {"x": 0, "y": 0, "width": _WIDTH, "height": _HEIGHT, "scale": 1}
        taken = page.call("Page.captureScreenshot", format="webp", quality=_QUALITY, clip=clip)
        path = ASSETS / f"{name}-{theme}.webp"
        path.write_bytes(base64.b64decode(taken["data"]))
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
