"""A proxy that answers nothing."""

import socket
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that answers nothing: its address, and what it was sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            while True:
                try:
                    with listener.accept()[0] as connection:
                        heard.append(connection.recv(1 << 12))
                except OSError:
                    return

        threading.Thread(target=listen, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)
