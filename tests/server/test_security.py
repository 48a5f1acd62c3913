"""Who may ask, how slowly and how much: hosts, origins, keys, slow clients, overload, files that change."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from multihead.inference import Pipeline
from multihead.pretrained import save
from multihead.server import Access, Limits, serve_in_thread
from multihead.server.security import host_name, is_loopback

GOOD = {"input": "a fine film"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def keyed(models: dict[str, Pipeline], client_of):
    access = Access("127.0.0.1", "s3cret", ("api.example.org",), ("https://page.example.org",))
    with serve_in_thread({"classify": models["classify"]}, access=access) as running:
        yield client_of(running)


@pytest.mark.parametrize(
    "given", ["", "s3cret", "Bearer", "Bearer s3cre", "Bearer s3cret2", "bearer s3cret", "Bearer ünï"]
)
def test_a_key_is_wanted(keyed, given: str) -> None:
    reply = keyed.send(
        "GET", "/v1/models", None, {"Authorization": given.encode("latin-1", "replace").decode("latin-1")}
    )
    assert reply.status == 401
    assert b"s3cre" not in reply.body


def test_the_key_opens_and_health_is_open(keyed) -> None:
    assert keyed.get("/v1/models", Authorization="Bearer s3cret").status == 200
    assert keyed.get("/health").status == 200
    assert keyed.get("/metrics").status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:8000", 200), ("[::1]:80", 200), ("api.example.org", 200), ("evil.example", 403),
     ("api.example.org.evil.example", 403), ("", 403), ("localhost.evil.example:80", 403)],
)  # fmt: skip
def test_hosts(keyed, host: str, status: int) -> None:
    assert keyed.get("/health", Host=host).status == status


def test_origins(keyed, client, server) -> None:
    named = keyed.get("/health", Origin="https://page.example.org")
    assert named.status == 200
    assert named.headers["access-control-allow-origin"] == "https://page.example.org"
    asked = keyed.send("OPTIONS", "/v1/models", None, {"Origin": "https://page.example.org"})
    assert asked.status == 204
    for origin in ("https://evil.example", "null", "https://page.example.org.evil.example"):
        reply = keyed.get("/health", Origin=origin)
        assert reply.status == 403
        assert "access-control-allow-origin" not in reply.headers
    own = client.get("/health", Origin=server.address, Host=server.address.removeprefix("http://"))
    assert own.status == 200
    assert "access-control-allow-origin" not in own.headers


def test_every_answer_has_its_headers(client) -> None:
    for reply in (client.get("/health"), client.get("/none"), client.post("/v1/predict/classify", GOOD)):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "server" not in reply.headers


def test_addresses() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")] == [True] * 5
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.0.2.1", "example.org")] == [False] * 4
    assert [host_name(host) for host in ("a:80", "[::1]:80", "a", "")] == ["a", "::1", "a", ""]


SLOW = {
    "no byte": b"",
    "half a header": b"POST /v1/predict/classify HTTP/1.1\r\nHost: localhost\r\nX-",
    "half a body": b"POST /v1/predict/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{",
    "a second request": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HT",
}


def test_200_slow_connections_are_closed_while_others_are_served(client, server) -> None:
    """The limit is 2 s here; each connection sends a byte now and then."""
    sockets = []
    for i in range(200):
        connection = socket.create_connection((client.host, client.port))
        connection.sendall(list(SLOW.values())[i % len(SLOW)])
        sockets.append(connection)
    start, waits = time.monotonic(), []
    open_sockets = set(sockets)
    while open_sockets and time.monotonic() - start < 10:
        asked = time.monotonic()
        assert client.post("/v1/predict/classify", GOOD).status == 200
        waits.append(time.monotonic() - asked)
        for connection in list(open_sockets):
            try:
                if select.select([connection], [], [], 0)[0] and not connection.recv(65536):
                    open_sockets.remove(connection)
                elif len(waits) % 8 == 1:
                    connection.sendall(b"a")
            except OSError:
                open_sockets.discard(connection)
        time.sleep(0.05)
    for connection in sockets:
        connection.close()
    assert not open_sockets, f"{len(open_sockets)} are still open"
    assert len(waits) > 5


def test_a_client_that_does_not_read_is_cut_off(models, client_of) -> None:
    with serve_in_thread({"classify": models["classify"]}, limits=Limits(slow=1.0)) as running:
        client = client_of(running)
        connection = socket.create_connection((client.host, client.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        rows = [f"encoder.{layer}.self.{head}" for layer in range(3) for head in range(4)]
        body = json.dumps({"input": "a fine film " * 11, "heads": rows}).encode()
        head = "POST /v1/heads/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        for _ in range(40):  # several answers that nobody takes
            try:
                connection.sendall(head.encode() + body)
            except OSError:
                break
        deadline = time.monotonic() + 15
        while running.server.server_state.connections and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not running.server.server_state.connections
        connection.close()


def test_overload_gives_429_and_recovers(models, client_of) -> None:
    limits = Limits(queue=4, inputs=4)
    with serve_in_thread({"classify": models["classify"]}, limits=limits) as running:
        client = client_of(running)
        opened, begun = threading.Event(), threading.Event()
        scheduler = running.table.models["classify"].scheduler
        scheduler.submit_alone(lambda: (begun.set(), opened.wait(30)))
        begun.wait(10)
        with ThreadPoolExecutor(24) as pool:
            futures = [pool.submit(client.post, "/v1/predict/classify", GOOD) for _ in range(24)]
            while sum(future.done() for future in futures) < 21:
                time.sleep(0.01)
            start = time.monotonic()
            assert client.get("/health").status == 200
            assert client.get("/ready").status == 200
            assert time.monotonic() - start < 5
            opened.set()
            replies = [future.result() for future in futures]
        statuses = sorted(reply.status for reply in replies)
        assert statuses == [200] * 3 + [429] * 21
        refused = next(reply for reply in replies if reply.status == 429)
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json["error"]["code"] == "overloaded"
        assert client.post("/v1/predict/classify", GOOD).status == 200
        assert scheduler.depth == 0
        too_many = client.post("/v1/predict/classify", {"inputs": ["a"] * 5})
        assert too_many.status == 413


def test_a_client_that_leaves_is_not_computed_for(models, client_of) -> None:
    with serve_in_thread({"classify": models["classify"]}) as running:
        client = client_of(running)
        scheduler = running.table.models["classify"].scheduler
        opened, begun = threading.Event(), threading.Event()
        scheduler.submit_alone(lambda: (begun.set(), opened.wait(30)))
        begun.wait(10)
        connection = socket.create_connection((client.host, client.port))
        body = json.dumps(GOOD).encode()
        connection.sendall(
            b"POST /v1/predict/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        _until(lambda: scheduler.depth == 2)
        connection.close()
        _until(lambda: scheduler.depth == 1)
        opened.set()


def _until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("how", ["truncated", "overwritten", "replaced", "removed"])
def test_a_model_file_that_changes_does_not_matter(models, client_of, tmp_path: Path, how: str) -> None:
    """The weights are in memory of the server's own; a file that is mapped and cut short would end the process."""
    path = tmp_path / "model"
    save(models["classify"], path)
    with serve_in_thread(path) as running:
        client = client_of(running)
        name = next(iter(running.table.models))
        before = client.post(f"/v1/predict/{name}", GOOD).json["prediction"]
        file = path / "model.safetensors"
        size = file.stat().st_size
        if how == "truncated":
            os.truncate(file, 0)
        elif how == "overwritten":
            with file.open("r+b") as opened:
                opened.write(b"\x7f" * size)
        elif how == "replaced":
            (path / "new").write_bytes(b"nothing")
            (path / "new").rename(file)
        else:
            file.unlink()
        after = client.post(f"/v1/predict/{name}", GOOD)
        assert after.status == 200
        assert after.json["prediction"] == before
