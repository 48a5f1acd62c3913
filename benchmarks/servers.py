"""The servers that are compared, each in a process of its own: ours; a plain FastAPI handler around the transformers
model, as people write it first (`python -m benchmarks.servers MODEL PORT`); LitServe with its batching on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

OURS, PLAIN, LITSERVE = "multihead", "FastAPI + transformers", "LitServe"
PATHS = {OURS: "/v1/predict/model", PLAIN: "/predict", LITSERVE: "/predict"}


@contextmanager
def started(kind: str, model: str, *more: str) -> Iterator[str]:
    """Start a server and wait until it answers; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours = ["multihead", "serve", f"model={model}", "--port", str(port), "--quiet", *more]
    theirs = "benchmarks.servers" if kind == PLAIN else "benchmarks.litserve_server"
    command = ours if kind == OURS else [theirs, model, str(port)]
    quiet = None if os.environ.get("MULTIHEAD_DEBUG") else subprocess.DEVNULL
    # A session of its own: LitServe's processes outlive the one that started them.
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=quiet, stderr=quiet, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(process, address)
        yield address
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ValueError(f"a server ended with {process.returncode}; MULTIHEAD_DEBUG=1 shows why")
        with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
            return
        time.sleep(0.2)
    raise ValueError(f"a server did not start within {seconds:g} s")


class Classifier:
    """The transformers model, as its documentation uses it."""

    def __init__(self, directory: str) -> None:
        import torch
        import transformers

        self.torch = torch
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        self.model = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()

    def __call__(self, texts: list[str]) -> list[dict[str, Any]]:
        with self.torch.inference_mode():
            batch = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            chances = self.model(**batch).logits.softmax(-1)
        best = chances.argmax(-1)
        return [
            {"label": self.model.config.id2label[int(label)], "score": float(row[label])}
            for row, label in zip(chances, best, strict=True)
        ]


def serve_plain(directory: str, port: int) -> None:
    """One request, one forward pass, in FastAPI's pool of threads."""
    import fastapi
    import uvicorn

    classifier, app = Classifier(directory), fastapi.FastAPI()

    def health() -> dict[str, str]:
        return {"status": "alive"}

    def predict(body: dict[str, Any]) -> dict[str, Any]:
        return classifier([body["input"]])[0]

    app.get("/health")(health)
    app.post("/predict")(predict)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    serve_plain(sys.argv[1], int(sys.argv[2]))
