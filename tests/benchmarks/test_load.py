"""The load clients against a plain server whose answers are known."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from benchmarks.load import Load, load_server, quantile


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(body)
        if b"slow" in body:
            time.sleep(0.2)
        self._answer(429 if b"refuse" in body else 200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_closed_loop(address: str) -> None:
    load = load_server(address, "/", [{"a": "refuse"}, {"a": "fine"}], 0.5, clients=2)
    assert load.count(200) > 2
    assert load.count(429) > 2
    assert load.count(200, 429) == len(load.answers)
    assert load.rate == load.count(200) / load.seconds


def test_open_loop_does_not_wait_for_answers(address: str) -> None:
    load = load_server(address, "/", [{"a": "slow"}], 1.0, rate=40)
    assert len(load.answers) > 15  # one client alone would have had time for five
    assert load.quantile(0.5) >= 0.2
    assert load.health


def test_a_server_that_is_not_there_is_counted() -> None:
    load = load_server("http://127.0.0.1:9", "/", [{}], 0.1, clients=1)
    assert load.answers
    assert load.count(0) == len(load.answers)


def test_quantiles() -> None:
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0, 0.5, 1)] == [1.0, 2.0, 3.0]
    assert math.isnan(quantile([], 0.5))
    assert Load(2.0, [(200, 0.1), (429, 0.2)]).rate == 0.5
