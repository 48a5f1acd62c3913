"""What a training run has to tell, gathered for the report."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from multihead.data.disk import sha256
from multihead.heads import Profile, stats
from multihead.models import Encoder
from multihead.report.facts import Confusion, Curve, Digest, Facts, Heads, Lengths, Mistake, Mistakes, Sample, Span
from multihead.run import write
from multihead.scores import spans
from multihead.tasks import Generate, Prediction, Scorer, Values
from multihead.tasks.classify import ClassScorer
from multihead.tasks.predict import predictions
from multihead.tasks.words import laid_out
from multihead.train.training import Training

LISTED = 200
SAMPLED = 60
PROMPT, AFTER = 40, 400  # characters that a language model is given, and of the text that goes on there
MISSED = 0.9  # where nothing was found, no score says how sure the model was; it stands among the sure mistakes
LOOKED = 64  # rows on which the heads are measured


class Collector:
    """The worst mistakes, by how sure the model was of them."""

    def __init__(self) -> None:
        self.worst: list[tuple[float, int, Mistake]] = []
        self.wrong = self.samples = 0
        self.written: list[Sample] = []
        self.number = count()

    def __call__(self, values: Values, prediction: Prediction, right: bool) -> None:
        self.samples += 1
        if "nats" in prediction or "target" in prediction:  # a text: it is not right or wrong
            if "target" in prediction and len(self.written) < SAMPLED:
                self.written.append(sample_of(values, prediction))
            return
        if right:
            return
        self.wrong += 1
        mistake = mistake_of(values, prediction)
        sure = MISSED if mistake.confidence is None else mistake.confidence
        heapq.heappush(self.worst, (sure, next(self.number), mistake))
        if len(self.worst) > LISTED:
            heapq.heappop(self.worst)

    def result(self) -> Mistakes:
        ordered = sorted(self.worst, key=lambda entry: (-entry[0], entry[1]))
        return Mistakes(tuple(mistake for _, _, mistake in ordered), self.wrong, self.samples)


def sample_of(values: Values, prediction: Prediction) -> Sample:
    place = f"{Path(values['file']).name}:{values['line']}" if "file" in values else ""
    source = values["source"] if isinstance(values["source"], str) else " ".join(values["source"])
    target = values["target"] if isinstance(values["target"], str) else " / ".join(values["target"])
    return Sample(source, target, prediction["target"], prediction["score"], place)


def mistake_of(values: Values, prediction: Prediction) -> Mistake:
    place = f"{Path(values['file']).name}:{values['line']}" if "file" in values else ""
    if "tags" in values:
        _, text, places = laid_out(values)
        gold = tuple(Span(places[a][0], places[b - 1][1], kind) for kind, a, b in spans(values["tags"], "conlleval"))
        said = tuple(Span(e["start"], e["end"], e["label"]) for e in prediction["entities"])
        sure = max((e["score"] for e in prediction["entities"]), default=None)
        return Mistake(text, gold_spans=gold, predicted_spans=said, confidence=sure, place=place)
    if "question" in values:
        right = ", ".join(sorted({a["text"] for a in values["answers"]})) or "no answer"
        said_text = prediction["answer"] if prediction["answer"] is not None else "no answer"
        return Mistake(
            values["context"], right, said_text, confidence=prediction["score"], place=place, beside=values["question"]
        )
    said_label = prediction.get("label", prediction.get("labels", prediction.get("score")))
    texts = (values["text"], "") if "text" in values else (values["text_a"], values["text_b"])
    sure = prediction.get("score") if "label" in prediction else None
    return Mistake(texts[0], str(values["label"]), str(said_label), confidence=sure, place=place, beside=texts[1])


def facts_of(
    training: Training, scorers: dict[str, Scorer], mistakes: dict[str, Collector], command: str, machine: str
) -> Facts:
    """The report of a finished run, on its test data if there is any."""
    side = "test" if "test" in scorers else "valid"
    scorer, task = scorers[side], training.task
    result = scorer.result()
    scores = {
        scorer.main: result[scorer.main],
        **{name: score for name, score in result.items() if name != scorer.main},
    }
    one = scorer.one if isinstance(scorer, ClassScorer) else None
    file = getattr(training.run.data, side) or training.run.data.train
    return Facts(
        title=Path(training.run.out).name,
        task=task.name,
        date=datetime.now().strftime("%Y-%m-%d %H:%M"),
        command=command,
        scored_on=f"{side} data: {names(file)}, {mistakes[side].samples:,} {'windows' if task.running else 'rows'}",
        scores=scores,
        tables=tuple(scorer.tables()),
        confusion=Confusion(tuple(task.labels), one.confusion()) if one is not None else None,
        curves=curves_of(training.out / "log.jsonl", scorer.main),
        best_step=training.best.get("step"),
        mistakes=mistakes[side].result() if task.readout.over != "vocabulary" else None,
        samples=tuple(mistakes[side].written or continued(training, side)),
        calibration=tuple(one.bins()) if one is not None else (),
        lengths=lengths_of(training),
        heads=heads_of(training, side),
        run_file=write(training.run),
        digests=tuple(digests_of(training)),
        machine=machine,
    )


def names(files: Any) -> str:
    return ", ".join(Path(f).name for f in ([files] if isinstance(files, str) else files))


def curves_of(log: Path, main: str) -> tuple[Curve, ...]:
    records = log_of(log)
    steps, scored = [r for r in records if "loss" in r], [r for r in records if "valid" in r]
    at, when = [r["step"] for r in steps], [r["step"] for r in scored]
    lost = [r["valid"].get("loss") for r in scored]  # of tasks that foretell tokens; it stands beside the other loss
    return (
        Curve("training loss", at, [r["loss"] for r in steps], "loss"),
        *([Curve("validation loss", when, lost, "loss")] if lost and None not in lost else []),
        Curve("learning rate", at, [r["lr"] for r in steps], "learning rate"),
        *([Curve(f"validation {main}", when, [r["valid"][main] for r in scored], "validation")] * (main != "loss")),
    )


def log_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").split("\n") if line]


def continued(training: Training, side: str) -> Iterable[Sample]:
    """A language model goes on with some beginnings of texts."""
    if not isinstance(training.task, Generate):
        return
    rows = [values for values in islice(training.setup.sides[side](), 5) if len(values["text"]) > PROMPT]
    asked = [{"prompt": values["text"][:PROMPT]} for values in rows]
    for values, (given, said) in zip(rows, predictions(training.model, training.task, asked), strict=True):
        place = f"{Path(values['file']).name}:{values['line']}"
        yield Sample(given["prompt"], values["text"][PROMPT : PROMPT + AFTER], said["text"], None, place)


def lengths_of(training: Training) -> Lengths:
    sizes = training.examples.sizes
    sizes = sizes[:: max(1, len(sizes) // 1_000_000)]
    counts, edges = np.histogram(sizes, bins=min(30, max(int(sizes.max()), 1)))
    full = float((sizes >= training.task.size).mean())  # a window is only full where an input was cut, or just fits
    steps = [record for record in log_of(training.out / "log.jsonl") if "padded" in record]
    padding = 1 - sum(r["tokens"] for r in steps) / max(sum(r["padded"] for r in steps), 1)
    limit = training.task.size
    return Lengths(edges.tolist(), counts.tolist(), of="training data", limit=limit, windowed=full, padding=padding)


def heads_of(training: Training, side: str) -> tuple[Heads, ...]:
    """What the heads do on some rows."""
    model, task = training.model, training.task
    if not isinstance(model.body, Encoder) or task.readout.over == "vocabulary":
        return ()
    found = stats(training.loaded, islice(training.setup.sides[side](), LOOKED))
    return facts_of_heads(found, f"{found.inputs} inputs")


def facts_of_heads(found: Profile, note: str) -> tuple[Heads, ...]:
    """Matrices [layers, heads] of every stack and kind; nan where a head was cut out."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, address in enumerate(found.addresses):
        stack, _, kind, _ = address.split(".")
        groups.setdefault((stack, kind), []).append(place)
    every = []
    for (stack, kind), places in groups.items():
        at = np.array([[int(n) for n in found.addresses[place].split(".")[1::2]] for place in places])
        shape = at.max(0) + 1
        statistics = {}
        for name, column in found.columns.items():
            if np.isfinite(column[places]).any():
                statistics[name] = np.full(shape, np.nan)
                statistics[name][at[:, 0], at[:, 1]] = column[places]
        names: dict[str, list[str]] = {}
        for place in places:
            names.setdefault(found.names[place], []).append(found.addresses[place])
        mine = {found.addresses[place] for place in places}
        alike = [cluster for cluster in found.clusters if set(cluster) <= mine]
        every.append(Heads(statistics, stack, kind, note, names, alike))
    return tuple(every)


def digests_of(training: Training) -> Iterable[Digest]:
    data = training.run.data
    for side in ("train", "valid", "test"):
        files = getattr(data, side)
        for file in [files] if isinstance(files, str) else files:
            if file:
                yield Digest(Path(file).name, sha256(Path(file)), side)
    weights = training.out / "model" / "model.safetensors"
    yield Digest("model/model.safetensors", sha256(weights), "the trained weights")
