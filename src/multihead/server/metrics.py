"""What a server counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """One registry per server, so that two servers in a process do not count each other's requests."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def make(kind: Any, name: str, text: str, labels: list[str], **more: Any) -> Any:
            return kind(f"multihead_{name}", text, labels, registry=registry, **more)

        self.requests = make(Counter, "requests_total", "Requests by route and status.", ["route", "status"])
        self.seconds = make(Histogram, "request_seconds", "Time to the end of an answer.", ["route"], buckets=SECONDS)
        self.running = make(Gauge, "requests_running", "Requests that are being answered.", [])
        self.queue = make(Gauge, "queue_inputs", "Inputs that were admitted and not answered yet.", ["model"])
        self.batches = make(Histogram, "batch_rows", "Rows of the batches that were read.", ["model"], buckets=ROWS)
        self.batch_seconds = make(
            Histogram, "batch_seconds", "Time to read a batch, or to make one step.", ["model"], buckets=SECONDS
        )
        self.tokens = make(
            Counter, "tokens_total", "Tokens by kind: read, padding, generated, reused.", ["model", "kind"]
        )
        self.sequences = make(Gauge, "sequences_running", "Texts that are being generated together.", ["model"])

    def model(self, name: str, depth: Callable[[], float]) -> ModelMetrics:
        """Return the counters of one model. depth: how many inputs wait, asked when somebody looks."""
        self.queue.labels(name).set_function(depth)
        return ModelMetrics(self, name)

    def write(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        text: bytes = generate_latest(self.registry)
        return text


class ModelMetrics:
    """The counters of one model; children are looked up once, as that takes longer than counting."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.rows, self.time = metrics.batches.labels(name), metrics.batch_seconds.labels(name)
        self.read, self.padding = (metrics.tokens.labels(name, kind) for kind in ("read", "padding"))
        self.generated, self.reused = (metrics.tokens.labels(name, kind) for kind in ("generated", "reused"))
        self.sequences = metrics.sequences.labels(name)

    def saw_batch(self, rows: int, tokens: int, padding: int, seconds: float) -> None:
        self.rows.observe(rows)
        self.time.observe(seconds)
        self.read.inc(tokens)
        self.padding.inc(padding)

    def saw_step(self, rows: int, seconds: float) -> None:
        """Count one step of decoding."""
        self.rows.observe(rows)
        self.time.observe(seconds)
        self.generated.inc(rows)

    def saw_prompt(self, read: int, reused: int) -> None:
        self.read.inc(read)
        self.reused.inc(reused)

    def saw_sequences(self, running: int) -> None:
        self.sequences.set(running)
