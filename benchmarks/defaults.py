"""Our defaults beside a plain transformers loop on small, noisy datasets: no default may be significantly worse.

    python -m benchmarks.defaults DATA --out runs/defaults
    python -m benchmarks.defaults DATA --out runs/defaults --systems ours --name no-warmup train.warmup=0

Both are given the model, the rows, the epochs, the learning rate and the number of steps; all else is ours by default,
or a tutorial's. A finished run is a line of OUT/runs.jsonl, and is not done again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.plain_loop import PlainLoop, PlainLoopSettings
from benchmarks.small_sets import SETS, Row, write_rows
from multihead.config import from_task, read, write
from multihead.metrics import entity_spans
from multihead.recipes import minilm
from multihead.tasks import Prediction, Values
from multihead.training.run import TrainingRun

PLAIN, OURS = "plain", "ours"
REPLICATES = 2000
Record = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare our defaults with a plain loop.")
    parser.add_argument("data", type=Path, help="the folder with conll2003, uner_ewt, glue_sst2, …")
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--from", dest="model", type=Path, default=minilm(), help="a BERT; unset: MiniLM")
    parser.add_argument("--sets", default=",".join(SETS), help="names, separated by commas")
    parser.add_argument("--systems", default=f"{PLAIN},{OURS}", help="plain, ours, or none: only the table")
    parser.add_argument("--name", default=OURS, help="what our runs are called, if keys are given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("keys", nargs="*", help="keys of our run file that differ from the default: train.warmup=0")
    given = parser.parse_intermixed_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    log = given.out / "runs.jsonl"
    names = given.sets.split(",")
    # Seed by seed, so that every set has a first comparison early.
    wanted = [(name, system, seed) for seed in range(1, given.seeds + 1) for name in names for system in (PLAIN, OURS)]
    wanted = [one for one in wanted if one[1] in given.systems.split(",")]
    for number, (name, system, seed) in enumerate(wanted, 1):
        called = given.name if system == OURS else PLAIN
        if (name, called, seed) in finished_runs(log):
            continue
        record = run_one(given.data, given.model, name, system, seed, given.keys) | {"system": called}
        with log.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")
        told = f"{name}, {called}, seed {seed}: {record['score']:.4f} in {record['seconds']:.0f} s"
        print(f"[{number}/{len(wanted)}] {told}", flush=True)
    Console(width=140).print(table(finished_runs(log), names, given.name))
    return 0


def finished_runs(log: Path) -> dict[tuple[str, str, int], Record]:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    records = map(json.loads, lines)
    return {(record["set"], record["system"], record["seed"]): record for record in records}


def run_one(data: Path, model: Path, name: str, system: str, seed: int, keys: Sequence[str]) -> Record:
    """Train on one set with one seed and score on its held-out rows."""
    small, settings, began = SETS[name], PlainLoopSettings(), time.perf_counter()
    train, held_out = small.draw(data, seed)
    if system == PLAIN:
        loop = PlainLoop(model, small.task, train, seed)
        loop.fit(train, settings)
        answers = loop.predict(held_out)
    else:
        answers = train_ours(model, small.task, train, held_out, settings, seed, keys)
    rows = [row_sums(small.task, row, answer) for row, answer in zip(held_out, answers, strict=True)]
    score = float(score_of(small.task, np.array(rows, dtype=float).sum(0)))
    return {"set": name, "seed": seed, "score": score, "rows": rows, "seconds": time.perf_counter() - began}


def train_ours(
    model: Path,
    task: str,
    train: Sequence[Row],
    held_out: Sequence[Row],
    settings: PlainLoopSettings,
    seed: int,
    keys: Sequence[str],
) -> list[Any]:
    """Do what `multihead train` does, with as many steps as the plain loop takes; what it answers to held-out rows."""
    answers: list[Any] = []

    def hear(_: Values, prediction: Prediction, __: bool) -> None:
        answers.append(next(prediction[name] for name in ("tags", "label", "score") if name in prediction))

    with tempfile.TemporaryDirectory() as folder:
        files = {
            side: str(write_rows(task, rows, Path(folder, side)))
            for side, rows in (("train", train), ("test", held_out))
        }
        run = from_task(
            task,
            from_=str(model),
            out=str(Path(folder, "run")),
            data=files,
            train={
                "epochs": settings.epochs,
                "lr": settings.lr,
                "batch_tokens": batch_tokens(model, task, train, settings.batch),
                "seed": seed,
            },
            **({"match": {"target": "score"}} if task == "match" else {}),
        )
        training = TrainingRun(read(write(run), keys))
        for _ in training:
            pass
        training.finish(replicates=0, on_row={"test": hear})
    return answers


def batch_tokens(model: Path, task: str, rows: Sequence[Row], batch: int) -> int:
    """So many tokens that an epoch has as many batches as with `batch` rows in each."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    if task == "ner":
        ids = tokenizer([row["tokens"] for row in rows], is_split_into_words=True)["input_ids"]
    else:
        sides = ("text",) if task == "classify" else ("text_a", "text_b")
        ids = tokenizer(*([row[side] for row in rows] for side in sides))["input_ids"]
    return round(batch * sum(map(len, ids)) / len(rows))


def row_sums(task: str, row: Row, answer: Any) -> list[float]:
    """Return numbers of a row whose sums over all rows give the score."""
    if task == "ner":
        gold, predicted = set(entity_spans(row["tags"], "conlleval")), set(entity_spans(answer, "conlleval"))
        return [len(gold & predicted), len(predicted), len(gold)]
    if task == "classify":
        return [answer == row["label"], 1]
    x, y = float(answer), float(row["label"])
    return [1, x, y, x * x, y * y, x * y]


def score_of(task: str, sums: NDArray[Any]) -> NDArray[Any]:
    """Entity F1, accuracy or Pearson's correlation of sums [..., k]."""
    if task == "ner":
        return 2 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1)
    if task == "classify":
        return sums[..., 0] / sums[..., 1]
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    return (n * xy - x * y) / np.sqrt(np.maximum((n * xx - x * x) * (n * yy - y * y), 1e-12))


def interval(task: str, first: NDArray[Any], second: NDArray[Any]) -> tuple[float, float, float]:
    """Mean difference second − first of row sums [S, N, k], and its 95 % interval.

    Rows and seeds are drawn again, the same for both sides.
    """
    draw = np.random.default_rng(0)
    seeds, rows, _ = first.shape
    weights = draw.multinomial(rows, np.full(rows, 1 / rows), REPLICATES).astype(float)
    scores = [score_of(task, np.einsum("rn,snk->rsk", weights, sums)) for sums in (first, second)]
    which = draw.integers(seeds, size=(REPLICATES, seeds))
    drawn = np.take_along_axis(scores[1] - scores[0], which, axis=1).mean(1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    mean = (score_of(task, second.sum(1)) - score_of(task, first.sum(1))).mean()
    return float(mean), float(low), float(high)


def table(records: Mapping[tuple[str, str, int], Record], names: Sequence[str], called: str) -> Table:
    found = Table(title=f"{called} beside the plain loop", caption="95 % interval: rows and seeds drawn again, paired")
    for column in ("set", "score", "plain loop", called, "difference", "verdict"):
        found.add_column(column, no_wrap=True)
    for name in names:
        task = SETS[name].task
        seeds = [seed for n, system, seed in records if n == name and system == called]
        seeds = sorted(seed for seed in seeds if (name, PLAIN, seed) in records)
        if not seeds:
            continue
        pairs = [[records[name, system, seed] for seed in seeds] for system in (PLAIN, called)]
        mean, low, high = interval(task, *(np.array([one["rows"] for one in side], dtype=float) for side in pairs))
        scores = (" ".join(f"{one['score']:.3f}" for one in side) for side in pairs)
        verdict = "below" if high < 0 else "above" if low > 0 else "equal"
        kind = {"ner": "entity F1", "classify": "accuracy", "match": "Pearson"}[task]
        found.add_row(name, kind, *scores, f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]", verdict)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
