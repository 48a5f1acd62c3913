"""Do two checkouts compute the same? A tiny seeded run of every task in both; SHA-256 of weights, metrics, predictions.

    git worktree add ../before COMMIT
    python -m benchmarks.unchanged ../before .

Each run is made by the commands of its own checkout, in a process of its own. What was renamed since is mapped: tensors
are compared by their bytes, whatever they are called, and RENAMED lists keys of predictions and metrics.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from safetensors import safe_open

RENAMED = {"receipt": "input_info"}
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
SETTINGS = (
    "train.steps=12", "train.eval_every=6", "train.save_every=6", "train.batch_tokens=128", "train.seed=3",
    "model.dim=32", "model.layers=2", "model.heads=4", "model.inner=48", "model.max_length=64",
    "tokenizer.vocab=300", "window.size=48", "window.overlap=8", "train.precision=fp32",
)  # fmt: skip
MODES = {"match-bi": ("match", ("match.kind=bi",)), "ner-crf": ("ner", ("ner.crf=true",))}


def text(seed: int, length: int = 7) -> str:
    return " ".join(WORDS[(seed * 7 + i * i + i * seed) % len(WORDS)] for i in range(length)) + "."


def example(task: str, i: int) -> dict[str, Any]:
    """Return a made-up training example."""
    words = text(i).split()
    if task == "ner":
        return {"tokens": words, "tags": [{"alpha": "B-A", "beta": "B-B"}.get(word, "O") for word in words]}
    if task == "classify":
        return {"text": text(i), "label": WORDS[i % 3]}
    if task == "match":
        return {"text_a": text(i), "text_b": text(i + i % 2), "label": "no" if i % 2 else "yes"}
    if task == "answer":
        answer = {"text": " ".join(words[1:3]), "start": len(words[0]) + 1}
        return {"question": f"what is {i}?", "context": text(i), "answers": [answer]}
    if task in ("translate", "summarize"):
        return {"source": text(i, 20), "target": text(i + 1, 5)}
    return {"text": text(i, 30)}


def commands(task: str, options: tuple[str, ...], folder: Path) -> list[list[str]]:
    data, run = folder / "data.jsonl", folder / "run.toml"
    run.write_text(f'task = "{task}"\n[data]\ntrain = "{data}"\n', encoding="utf-8")
    examples = [example(task, i) for i in range(24)]
    data.write_text("".join(json.dumps(row) + "\n" for row in examples), encoding="utf-8")
    gold = ("label", "tags", "answers", "target")
    inputs = [{name: value for name, value in row.items() if name not in gold} for row in examples[:8]]
    if task == "generate":
        inputs = [{"prompt": text(i, 3)} for i in range(8)]
    elif task in ("mask", "denoise"):  # every text has a word to fill in
        inputs = [{"text": f"{text(i)} <mask>"} for i in range(8)]
    (folder / "inputs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in inputs), encoding="utf-8")
    model = str(folder / "run" / "model")
    return [
        ["train", str(run), f"data.valid={data}", f"out={folder / 'run'}", *SETTINGS, *options],
        ["evaluate", model, str(data), "--json"],
        ["predict", model, str(folder / "inputs.jsonl")],
    ]


def rename(value: Any) -> Any:
    if isinstance(value, dict):
        return {RENAMED.get(key, key): rename(item) for key, item in value.items()}
    return [rename(item) for item in value] if isinstance(value, list) else value


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:16]


def weights_digest(model: Path) -> str:
    """Return the digest of all tensors of a model, in the order of their own digests."""
    with safe_open(model / "model.safetensors", framework="numpy") as file:
        tensors = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118 - not a dict
    return digest("".join(sorted(f"{t.dtype}{t.shape}{digest(t.tobytes())}" for t in tensors)).encode())


def run_task(checkout: Path, task: str, options: tuple[str, ...]) -> dict[str, str]:
    """Train, evaluate and predict in a checkout; return what is compared, and a short name of each metric."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        outputs = []
        for words in commands(task, options, folder := Path(name)):
            done = subprocess.run(
                [sys.executable, "-m", "multihead", *words], env=environment, cwd=name, capture_output=True, text=True
            )
            if done.returncode:
                raise SystemExit(f"{checkout}: multihead {' '.join(words)}: {done.stderr.strip()[-600:]}")
            outputs.append(done.stdout)
        metrics = rename(json.loads(outputs[1]))
        predictions = [rename(json.loads(line)) for line in outputs[2].splitlines()]
        return {
            "weights": weights_digest(folder / "run" / "model"),
            "metrics": digest(json.dumps(metrics, sort_keys=True).encode()),
            "predictions": digest(json.dumps(predictions, sort_keys=True).encode()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=Path())
    parser.add_argument("--task", action="append", help="only this one; may be repeated")
    given = parser.parse_args()
    from multihead.tasks.spec import SPECS

    every = {name: (name, ()) for name in SPECS} | MODES
    table, changed, console = Table("task", "what", "before", "after", ""), 0, Console()
    for name in given.task or every:
        before, after = (run_task(path.resolve(), *every[name]) for path in (given.before, given.after))
        for what in before:
            same = before[what] == after[what]
            changed += not same
            table.add_row(name, what, before[what], after[what], "same" if same else "CHANGED")
    console.print(table)
    raise SystemExit(f"{changed} changed" if changed else 0)


if __name__ == "__main__":
    main()
