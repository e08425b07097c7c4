"""Chromium without a window, by its protocol over a pipe: one page, its keys, its messages and its requests."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.times import PATIENCE_S

CHROMIUM = shutil.which("chromium")

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


class Browser:
    """A page of a browser. `requests`: the addresses that it asked for. `complaints`: errors and warnings of its console."""

    def __init__(self, to: int, come_from: int) -> None:
        self._to, self._from = to, come_from
        self._read, self._n_sent = b"", 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """The result of a method of the protocol."""
        self._n_sent += 1
        message = {"id": self._n_sent, "method": method, "params": values}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (found := self._next()).get("id") != self._n_sent:
            self._note(found)
        assert "error" not in found, found
        result: dict[str, Any] = found["result"]
        return result

    def show(self, url: str, width: int = 1000, is_dark: bool = False) -> None:
        """Opens an address in a window of this width."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """The value of an expression as soon as it is true."""
        end = time.monotonic() + PATIENCE_S
        attempt = f"(() => {{ try {{ return {script} }} catch {{ return false }} }})()"  # the page may not be there yet
        while not (found := self.value(attempt)):
            assert time.monotonic() < end, (
                f"{script} is not true; the page says: {self.value('document.body.innerText')}"
            )
            time.sleep(0.05)
        return found

    def press(self, *keys: str) -> None:
        """Presses keys, one after another."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            code = {"Enter": 13, "Tab": 9}.get(key, 0)
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            assert select.select([self._from], [], [], PATIENCE_S)[0], "the browser does not answer"
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser has ended"
            self._read += piece
        message, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        method, values = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(values))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser, with its files in this folder, which ends with the block."""
    assert CHROMIUM is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    command = [CHROMIUM, *_FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    running = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", *command],
        pass_fds=(to_read, from_write),
        env={**os.environ, "HOME": str(folder)},
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(to_write, from_read)
    finally:
        os.close(to_write)  # ends it
        try:
            running.wait(timeout=10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        os.close(from_read)
