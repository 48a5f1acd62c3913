"""Clients that load a server: closed-loop (so many clients, each asks again once it is answered) and open-loop
(requests come at a rate, answered or not, as people do). One connection per client, HTTP spoken by hand, so that the
client takes as little of the machine as can be; it runs in a process of its own."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

FAILED = 0  # the status of a request without an answer


@dataclass
class Load:
    """What came of a run. latencies: (status, seconds) of each request; open-loop, from when it was due."""

    seconds: float
    answers: list[tuple[int, float]] = field(default_factory=list)
    health: list[float] = field(default_factory=list)  # seconds that GET /health took meanwhile

    def count(self, *statuses: int) -> int:
        return sum(status in statuses for status, _ in self.answers)

    @property
    def rate(self) -> float:
        """Requests that were answered with 200, each second."""
        return self.count(200) / self.seconds

    def quantile(self, share: float, status: int = 200) -> float:
        return quantile([seconds for found, seconds in self.answers if found == status], share)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def load_server(address: str, path: str, bodies: Sequence[Any], seconds: float, **how: Any) -> Load:
    """Run a client in another process. how: clients=32, or rate=500 (requests a second) for the open loop."""
    asked = {"address": address, "path": path, "bodies": list(bodies), "seconds": seconds, **how}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return Load(found["seconds"], [(status, took) for status, took in found["answers"]], found["health"])


class Connection:
    """One connection that is kept open, and opened again where the server closed it."""

    def __init__(self, address: str) -> None:
        where = urlsplit(address)
        self.host, self.port = where.hostname or "127.0.0.1", where.port or 80
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        try:
            if self.streams is None:
                self.streams = await asyncio.open_connection(self.host, self.port)
            reader, writer = self.streams
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await self._body(reader, head)
            if b"connection: close" in head:
                self.close()
            return int(head[9:12]), body
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return FAILED, b""

    async def _body(self, reader: asyncio.StreamReader, head: bytes) -> bytes:
        if b"content-length:" in head:
            return await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        parts = []
        while size := int(await reader.readline(), 16):  # chunks
            parts.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(parts)

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


def request_of(path: str, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return head.encode() + b"\r\n\r\n" + data


async def run_closed(address: str, requests: Sequence[bytes], seconds: float, clients: int) -> Load:
    """Every client asks, waits for the answer and asks again."""
    load, start = Load(seconds), time.perf_counter()

    async def client(number: int) -> None:
        connection, at = Connection(address), number
        while (begun := time.perf_counter()) - start < seconds:
            status, _ = await connection.ask(requests[at % len(requests)])
            load.answers.append((status, time.perf_counter() - begun))
            at += clients
        connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    load.seconds = time.perf_counter() - start
    return load


async def run_open(address: str, requests: Sequence[bytes], seconds: float, rate: float) -> Load:
    """Requests come as a Poisson process, whatever becomes of those before; latencies count from when one was due."""
    load, start, draw = Load(seconds), time.perf_counter(), random.Random(0)
    free: list[Connection] = []
    running: set[asyncio.Task[None]] = set()

    async def ask(number: int, due: float) -> None:
        connection = free.pop() if free else Connection(address)
        status, _ = await connection.ask(requests[number % len(requests)])
        load.answers.append((status, time.perf_counter() - due))
        free.append(connection)

    probing = asyncio.ensure_future(_probe_health(address, load))
    due, number = start, 0
    while due - start < seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.ensure_future(ask(number, due))
        running.add(task)
        task.add_done_callback(running.discard)
        due, number = due + draw.expovariate(rate), number + 1
    load.seconds = time.perf_counter() - start
    await asyncio.wait(running, timeout=90) if running else None
    probing.cancel()
    for connection in free:
        connection.close()
    return load


async def _probe_health(address: str, load: Load) -> None:
    connection = Connection(address)
    while True:
        begun = time.perf_counter()
        status, _ = await connection.ask(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if status == 200:
            load.health.append(time.perf_counter() - begun)
        await asyncio.sleep(0.05)


def main() -> None:
    asked = json.load(sys.stdin)
    requests = [request_of(asked["path"], body) for body in asked["bodies"]]
    if "rate" in asked:
        load = asyncio.run(run_open(asked["address"], requests, asked["seconds"], asked["rate"]))
    else:
        load = asyncio.run(run_closed(asked["address"], requests, asked["seconds"], asked["clients"]))
    print(json.dumps(asdict(load)))


if __name__ == "__main__":
    main()
