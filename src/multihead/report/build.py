"""Build the report data of a training run."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from multihead.config import write
from multihead.inference.engine import predict_rows
from multihead.inspection.head_profile import HeadProfile, stats
from multihead.io.files import sha256
from multihead.io.weights import WEIGHTS
from multihead.metrics import entity_spans
from multihead.models import Encoder
from multihead.pretrained.multitask import READOUTS
from multihead.report.data import (
    ConfusionMatrix,
    FileDigest,
    GeneratedSample,
    HeadTable,
    LengthHistogram,
    Mistake,
    Mistakes,
    ReportData,
    Span,
    TrainingCurve,
)
from multihead.tasks import Prediction, Scorer, Values
from multihead.tasks.bi_encoder import BiEncoder
from multihead.tasks.classify import ClassScorer, label_names
from multihead.tasks.generate import Generate
from multihead.tasks.tag_scorer import is_bio
from multihead.tasks.word_spans import join_tokens
from multihead.training.dataset import BlockDataset, TrainingData
from multihead.training.log import read_record
from multihead.training.run import MEAN, TrainingRun
from multihead.training.setup import TaskSetup

LISTED = 200
SAMPLED = 60
PROMPT, AFTER = 40, 400  # characters of a prompt, and of its reference continuation
MISSED = 0.9  # confidence where nothing was predicted: listed among the confident mistakes
BARS = 30  # of the length histogram
TOGETHER = "belong together"  # the gold label of pairs without labels
LOOKED = 64  # examples on which the heads are measured


class MistakeCollector:
    """Collect the worst mistakes: the most confident ones, or those farthest from the gold value.

    to_label: converts a score to a label, where they have different units.
    """

    def __init__(self, to_label: Callable[[float], float] = float) -> None:
        self.to_label = to_label
        self.worst: list[tuple[float, int, Mistake]] = []
        self.wrong = self.samples = 0
        self.written: list[GeneratedSample] = []
        self.number = count()

    def __call__(self, values: Values, prediction: Prediction, right: bool) -> None:
        self.samples += 1
        if "nats" in prediction or "target" in prediction:  # generated text is neither right nor wrong
            if "target" in prediction and len(self.written) < SAMPLED:
                self.written.append(sample_of(values, prediction))
            return
        if right:
            return
        self.wrong += 1
        if "score" in prediction and "label" not in prediction and "answer" not in prediction:
            prediction = {"score": round(self.to_label(prediction["score"]), 6)}
        mistake = mistake_of(values, prediction)
        heapq.heappush(self.worst, (severity(values, prediction, mistake), -next(self.number), mistake))
        if len(self.worst) > LISTED:
            heapq.heappop(self.worst)  # of equals, the later one is dropped

    def result(self) -> Mistakes:
        ordered = sorted(self.worst, key=lambda entry: entry[:2], reverse=True)
        return Mistakes(tuple(mistake for _, _, mistake in ordered), self.wrong, self.samples)


def sample_of(values: Values, prediction: Prediction) -> GeneratedSample:
    place = f"{Path(values['file']).name}:{values['line']}" if "file" in values else ""
    source = values["source"] if isinstance(values["source"], str) else " ".join(values["source"])
    target = values["target"] if isinstance(values["target"], str) else " / ".join(values["target"])
    return GeneratedSample(source, target, prediction["target"], prediction["score"], place)


def mistake_of(values: Values, prediction: Prediction) -> Mistake:
    place = f"{Path(values['file']).name}:{values['line']}" if "file" in values else ""
    if "tags" in values:
        words = values["tokens"]
        text, places = join_tokens(words, values.get("spaces"))
        if not is_bio((*values["tags"], *prediction["tags"])):
            marked = zip(words, values["tags"], prediction["tags"], strict=True)
            differ = [(word, right, predicted) for word, right, predicted in marked if right != predicted]
            gold_tags, predicted_tags = (", ".join(f"{row[0]} {row[side]}" for row in differ) for side in (1, 2))
            return Mistake(text, gold_tags, predicted_tags, place=place)
        gold = tuple(
            Span(places[a][0], places[b - 1][1], kind) for kind, a, b in entity_spans(values["tags"], "conlleval")
        )
        predicted_spans = tuple(Span(e["start"], e["end"], e["label"]) for e in prediction["entities"])
        confidence = max((e["score"] for e in prediction["entities"]), default=None)
        return Mistake(text, gold_spans=gold, predicted_spans=predicted_spans, confidence=confidence, place=place)
    if "question" in values:
        right = ", ".join(sorted({a["text"] for a in values["answers"]})) or "no answer"
        predicted_answer = prediction["answer"] if prediction["answer"] is not None else "no answer"
        return Mistake(
            values["context"],
            right,
            predicted_answer,
            confidence=prediction["score"],
            place=place,
            beside=values["question"],
        )
    predicted_label = prediction.get("label", prediction.get("labels", prediction.get("score")))
    texts = (values["text"], "") if "text" in values else (values["text_a"], values["text_b"])
    confidence = prediction.get("score") if "label" in prediction else None
    gold_label = str(values.get("label", TOGETHER))
    return Mistake(texts[0], gold_label, str(predicted_label), confidence=confidence, place=place, beside=texts[1])


def severity(values: Values, prediction: Prediction, mistake: Mistake) -> float:
    """Return the sort key of a mistake, largest first; only mistakes of one task are compared."""
    if mistake.confidence is not None:
        return mistake.confidence
    if "labels" in prediction:  # multi-label: the confidence of the worst error
        gold = label_names(values["label"])
        return max(abs(probability - (name in gold)) for name, probability in prediction["scores"].items())
    if "score" not in prediction:
        return MISSED
    try:
        return abs(float(values["label"]) - prediction["score"])
    except (KeyError, ValueError):  # names or no labels: text pairs
        return abs(prediction["score"] - 0.5)


def collector_of(subject: TaskSetup) -> MistakeCollector:
    task = subject.task
    return (
        MistakeCollector(task.cosine_to_label)
        if isinstance(task, BiEncoder) and task.options.get("score")
        else MistakeCollector()
    )


def build_report(
    training: TrainingRun,
    subject: TaskSetup,
    scorers: dict[str, Scorer],
    mistakes: dict[str, MistakeCollector],
    command: str,
    machine: str,
) -> ReportData:
    """Return the report of a finished run, on its test data if there is any; with several tasks, of one."""
    side = "test" if subject.qualified_name("test") in scorers else "valid"
    scorer, task, collected = (
        scorers[subject.qualified_name(side)],
        subject.task,
        mistakes[subject.qualified_name(side)],
    )
    result = scorer.result()
    scores = {
        scorer.main: result[scorer.main],
        **{name: score for name, score in result.items() if name != scorer.main},
    }
    classification = scorer.one if isinstance(scorer, ClassScorer) else None
    file = getattr(subject.run.data, side)
    where = f"{side} data: {file_names(file)}" if file else f"held out of {file_names(subject.run.data.train)}"
    return ReportData(
        title=subject_title(training, subject.name),
        task=task.name,
        date=datetime.now().strftime("%Y-%m-%d %H:%M"),
        command=command,
        scored_on=f"{where}, {collected.samples:,} {'windows' if task.running else 'rows'}",
        scores=scores,
        tables=tuple(scorer.tables()),
        confusion=ConfusionMatrix(tuple(task.labels), classification.confusion())
        if classification is not None
        else None,
        curves=curves_of(training.out / "log.jsonl", scorer.main, subject),
        best_step=None if training.mean else training.best.get("step"),  # averaged weights belong to no single step
        mistakes=collected.result() if task.readout.over != "vocabulary" else None,
        samples=tuple(collected.written or generate_samples(subject, side)),
        calibration=tuple(classification.bins()) if classification is not None else (),
        lengths=lengths_of(training, subject),
        heads=heads_of(subject, side),
        run_file=write(training.run),
        digests=tuple(digests_of(training, subject)),
        machine=machine,
        warnings=data_of(training, subject).notes,
    )


def subject_title(training: TrainingRun, name: str) -> str:
    return f"{Path(training.run.out).name}{f': {name}' if name else ''}"


def combine_reports(training: TrainingRun, reports: Mapping[str, ReportData]) -> ReportData:
    """Return one report over several tasks: all scores, curves and heads; the rest is on each task's own page."""
    scores = {f"{name}/{key}": score for name, f in reports.items() for key, score in f.scores.items()}
    mains = [f"{name}/{next(iter(f.scores))}" for name, f in reports.items()]
    first = next(iter(reports.values()))
    log = training.out / "log.jsonl"
    means = [(r["step"], r["valid"][MEAN]) for r in log_of(log) if MEAN in r.get("valid", {})]
    rates = next(curve for curve in first.curves if curve.panel == "learning rate")
    curves = [task_curve(c, name, f) for name, f in reports.items() for c in f.curves if c.panel != rates.panel]
    for name in (subject.name for subject in training.subjects if subject.name not in reports):  # auxiliary
        losses = ((r["step"], r["loss"]) for r in log_of(log) if r.get("task") == name)
        curves.append(curve_of(f"{name}: training loss", losses, "loss"))
    mean = curve_of(f"validation {MEAN}", means, "validation")
    rate = curve_of(rates.name, ((r["step"], r["lr"]) for r in log_of(log) if "loss" in r), rates.panel)
    return replace(
        first,
        title=subject_title(training, ""),
        task=", ".join(f"{subject.name} ({subject.task.name})" for subject in training.subjects),
        scored_on="; ".join(f"{name}: {f.scored_on}, see report-{name}.html" for name, f in reports.items()),
        scores={key: scores[key] for key in mains} | scores,  # the main score of every task first
        tables=tuple(replace(table, title=f"{n}: {table.title}") for n, f in reports.items() for table in f.tables),
        confusion=None,
        curves=(*curves, rate, *([mean] if means else [])),
        mistakes=None,
        samples=(),
        calibration=(),
        lengths=None,
        heads=tuple(replace(part, note=f"{name}, {part.note}") for name, f in reports.items() for part in f.heads),
        digests=tuple(dict.fromkeys(digest for f in reports.values() for digest in f.digests)),
    )


def task_curve(curve: TrainingCurve, name: str, facts: ReportData) -> TrainingCurve:
    """Return a curve of one task among others; scores are shares, as in their mean."""
    if curve.panel == "validation" and next(iter(facts.scores.values())).unit == "percent":
        curve = replace(curve, name=f"{curve.name} ÷ 100", values=[value / 100 for value in curve.values])
    return replace(curve, name=f"{name}: {curve.name}")


def curve_of(name: str, points: Iterable[tuple[int, float | None]], panel: str) -> TrainingCurve:
    """Return a curve; None stands for a value that is not finite."""
    steps, values = array("q"), array("d")
    for step, value in points:
        steps.append(step)
        values.append(math.nan if value is None else value)
    return TrainingCurve(name, steps, values, panel)


def file_names(files: Any) -> str:
    return ", ".join(Path(f).name for f in ([files] if isinstance(files, str) else files))


def curves_of(log: Path, main: str, subject: TaskSetup) -> tuple[TrainingCurve, ...]:
    steps, losses, rates = array("q"), array("d"), array("d")
    lost: list[tuple[int, float]] = []
    valid: list[tuple[int, float]] = []
    for record in log_of(log):
        if "loss" in record and record.get("task", "") == subject.name:
            steps.append(record["step"])
            losses.append(math.nan if record["loss"] is None else record["loss"])
            rates.append(record["lr"])
        for name, points in (("loss", lost), (main, valid)):  # loss: of next-token prediction
            if subject.qualified_name(name) in record.get("valid", {}):  # auxiliary tasks have none
                points.append((record["step"], record["valid"][subject.qualified_name(name)]))
    return (
        TrainingCurve("training loss", steps, losses, "loss"),
        *([curve_of("validation loss", lost, "loss")] if lost else []),
        TrainingCurve("learning rate", steps, rates, "learning rate"),
        *([curve_of(f"validation {main}", valid, "validation")] if valid and main != "loss" else []),
    )


def log_of(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log, one at a time: a long run has millions. Damaged ones are skipped."""
    with log.open("rb") as lines:
        yield from (record for line in lines if (record := read_record(line)) is not None)


def generate_samples(subject: TaskSetup, side: str) -> Iterable[GeneratedSample]:
    """Yield continuations of some prompts by a language model."""
    if not isinstance(subject.task, Generate):
        return
    prompts = [_prompt_of(values) for values in islice(subject.sides[side](), 5)]
    prompts = [prompt for prompt in prompts if prompt[2]]
    inputs = (prompt[0] for prompt in prompts)
    for (_, source, reference, place), (_, prediction) in zip(
        prompts, predict_rows(subject.loaded.model, subject.task, inputs), strict=True
    ):
        yield GeneratedSample(source, reference, prediction["text"], None, place)


def _prompt_of(values: Values) -> tuple[Values, str, str, str]:
    """Return a prompt: the start of a text, or a conversation before its last answer; as text, its reference, and its
    place.
    """
    place = f"{Path(values['file']).name}:{values['line']}"
    if "conversation" not in values:
        text = values["text"]
        return {"prompt": text[:PROMPT]}, text[:PROMPT], text[PROMPT : PROMPT + AFTER], place
    messages = values["conversation"]
    last = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
    before = "\n".join(message["content"] for message in messages[:last])
    return {"messages": messages[:last]}, before, messages[last]["content"] if last else "", place


def data_of(training: TrainingRun, subject: TaskSetup) -> TrainingData:
    return cast(TrainingData, training.parts[training.subjects.index(subject)].data)


def lengths_of(training: TrainingRun, subject: TaskSetup) -> LengthHistogram:
    """Return the length histogram of the training data; for pairs, the longer side, which the window must hold."""
    data = data_of(training, subject)
    lengths = data.sizes if isinstance(data, BlockDataset) else data.lengths
    sizes = lengths[:: max(1, len(lengths) // 1_000_000)]
    sizes = sizes.max(-1) if sizes.ndim > 1 else sizes
    low, high = int(sizes.min()), int(sizes.max())
    width = -(-(high - low + 1) // BARS)  # whole tokens: bars of as many lengths each
    counts, edges = np.histogram(sizes, bins=np.arange(low, high + width + 1, width))
    real = padded = 0
    for record in log_of(training.out / "log.jsonl"):
        if "padded" in record and record.get("task", "") == subject.name:
            real, padded = real + record["tokens"], padded + record["padded"]
    inputs = None if isinstance(data, BlockDataset) else data.inputs
    return LengthHistogram(
        edges.tolist(),
        counts.tolist(),
        of="training data",
        limit=subject.task.size,
        windowed=None if inputs is None else inputs.windowed / max(inputs.rows, 1),
        padding=1 - real / max(padded, 1),
        truncated=0 if inputs is None else inputs.cut,
    )


def heads_of(subject: TaskSetup, side: str) -> tuple[HeadTable, ...]:
    """Return head statistics on some examples."""
    if not isinstance(subject.loaded.model.body, Encoder) or subject.task.readout.over == "vocabulary":
        return ()
    profile = stats(subject.loaded, islice(subject.sides[side](), LOOKED))
    return build_head_tables(profile, f"{profile.inputs} inputs")


def build_head_tables(profile: HeadProfile, note: str) -> tuple[HeadTable, ...]:
    """Return matrices [layers, heads] of every stack and kind; nan where a head was pruned."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, address in enumerate(profile.addresses):
        stack, _, kind, _ = address.split(".")
        groups.setdefault((stack, kind), []).append(place)
    tables = []
    for (stack, kind), places in groups.items():
        at = np.array([[int(n) for n in profile.addresses[place].split(".")[1::2]] for place in places])
        shape = at.max(0) + 1
        statistics = {}
        for name, column in profile.columns.items():
            if np.isfinite(column[places]).any():
                statistics[name] = np.full(shape, np.nan)
                statistics[name][at[:, 0], at[:, 1]] = column[places]
        names: dict[str, list[str]] = {}
        for place in places:
            names.setdefault(profile.names[place], []).append(profile.addresses[place])
        addresses = {profile.addresses[place] for place in places}
        alike = [cluster for cluster in profile.clusters if set(cluster) <= addresses]
        tables.append(HeadTable(statistics, stack, kind, note, names, alike))
    return tuple(tables)


def digests_of(training: TrainingRun, subject: TaskSetup) -> Iterable[FileDigest]:
    data = subject.run.data
    for side in ("train", "valid", "test"):
        files = getattr(data, side)
        for file in [files] if isinstance(files, str) else files:
            if file:
                yield FileDigest(Path(file).name, sha256(Path(file)), side)
    for name, note in ((WEIGHTS[0], "the trained weights"), (READOUTS, "the readout of each task")):
        if (weights := training.out / "model" / name).exists():
            yield FileDigest(f"model/{name}", sha256(weights), note)
