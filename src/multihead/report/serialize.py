"""Convert report data to compact JSON for a page: thinned curves, clipped texts, limited mistakes, a sparse confusion
matrix.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.metrics import Score, to_json
from multihead.report.data import (
    ConfusionMatrix,
    GeneratedSample,
    HeadTable,
    LengthHistogram,
    Mistake,
    Mistakes,
    ReportData,
    Span,
    TrainingCurve,
    display_name,
)

POINTS = 240  # of one curve; more become means with the range around them
STILL = 0.05  # share of the curve's height that neighbors may differ by without a range drawn
MISTAKES = 200
SAMPLES = 60
LETTERS = 1200  # of one text
MARGIN = 200  # characters before the first mark of a clipped text
CLASSES = 160  # of the confusion matrix
PAIRS = 20  # of the most confused labels
RUN_FILE = 100_000


def serialize_report(facts: ReportData) -> dict[str, Any]:
    """Return JSON values in the form that views/ draw."""
    confusion, mistakes, lengths = facts.confusion, facts.mistakes, facts.lengths
    return {
        "title": facts.title,
        "task": facts.task,
        "date": facts.date,
        "command": facts.command,
        "scored_on": facts.scored_on,
        "scores": [_score(name, score) for name, score in facts.scores.items()],
        "tables": to_json(facts.tables),
        "confusion": None if confusion is None else serialize_confusion(confusion),
        "curves": [thin_curve(curve) for curve in facts.curves],
        "best_step": to_json(facts.best_step),
        "mistakes": None if mistakes is None else _mistakes(mistakes),
        "samples": [_sample(sample) for sample in facts.samples[:SAMPLES]],
        "calibration": to_json(facts.calibration),
        "lengths": None if lengths is None else _lengths(lengths),
        "heads": [_heads(heads) for heads in facts.heads],
        "run_file": clip_text(facts.run_file, RUN_FILE),
        "digests": to_json(facts.digests),
        "machine": facts.machine,
        "warnings": list(facts.warnings),
    }


def _score(name: str, score: Score) -> dict[str, Any]:
    return {"name": display_name(name), "key": name, **to_json(score)}


def _lengths(lengths: LengthHistogram) -> dict[str, Any]:
    return to_json(lengths) | {"edges": round_values(lengths.edges), "counts": to_json(np.asarray(lengths.counts))}


def _heads(heads: HeadTable) -> dict[str, Any]:
    matrices = {name: [round_values(row) for row in np.asarray(matrix)] for name, matrix in heads.statistics.items()}
    named = {name: list(addresses) for name, addresses in heads.names.items()}
    return {
        "stack": heads.stack,
        "kind": heads.kind,
        "note": heads.note,
        "statistics": matrices,
        "names": named,
        "alike": [list(cluster) for cluster in heads.alike],
    }


def round_values(values: Any, digits: int = 5) -> list[float | None]:
    """Round to significant digits: a fifth of the bytes of a float, without a visible difference."""
    return [None if value is None else float(f"{value:.{digits}g}") for value in to_json(list(values))]


def thin_curve(curve: TrainingCurve) -> dict[str, Any]:
    """Return the points, or means of neighbors with their minimum and maximum, so that no spike is lost.

    `lost` counts values that are not finite.
    """
    steps = np.asarray(curve.steps, dtype=np.float64)
    values = np.asarray(curve.values, dtype=np.float64)
    finite = np.isfinite(values)
    out: dict[str, Any] = {"name": curve.name, "panel": curve.panel, "lost": int((~finite).sum())}
    if len(values) <= POINTS:
        return out | {"steps": round_values(steps, 9), "values": round_values(values)}
    groups = np.array_split(np.arange(len(values)), POINTS)
    means, lows, highs = [], [], []
    for group in groups:
        values_here = values[group][finite[group]]
        means.append(float(values_here.mean()) if len(values_here) else np.nan)
        lows.append(float(values_here.min()) if len(values_here) else np.nan)
        highs.append(float(values_here.max()) if len(values_here) else np.nan)
    places = [float(steps[group].mean()) for group in groups]
    places[-1] = float(steps[-1])  # the axis ends where training ended
    out |= {"steps": round_values(places, 9), "values": round_values(means)}
    spread, reach = np.subtract(highs, lows), np.ptp(values[finite]) if finite.any() else 0
    if np.nanmax(spread, initial=0) > STILL * reach:  # a smooth line, as of the learning rate, needs no range
        out |= {"low": round_values(lows), "high": round_values(highs)}
    return out


def serialize_confusion(confusion: ConfusionMatrix) -> dict[str, Any]:
    """Return cells [gold, predicted, count] that are not zero, and the most confused pairs of labels.

    With very many labels, those with the most errors are retained.
    """
    counts = np.asarray(confusion.counts, dtype=np.int64)
    wrong = counts * ~np.eye(len(counts), dtype=bool)
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    golds, guesses = np.unravel_index(order, wrong.shape)
    pairs = [
        [confusion.labels[g], confusion.labels[p], int(wrong[g, p]), int(counts[g].sum())]
        for g, p in zip(golds, guesses, strict=True)
        if wrong[g, p]
    ]
    selected = _most_wrong(wrong)
    shown = counts[np.ix_(selected, selected)]
    cells = [[int(g), int(p), int(shown[g, p])] for g, p in np.argwhere(shown)]
    return {
        "labels": [confusion.labels[place] for place in selected],
        "cells": cells,
        "support": [int(counts[place].sum()) for place in selected],
        "pairs": pairs,
        "of": len(confusion.labels),
    }


def _most_wrong(wrong: NDArray[np.int64]) -> list[int]:
    if len(wrong) <= CLASSES:
        return list(range(len(wrong)))
    errors = wrong.sum(0) + wrong.sum(1)
    return sorted(int(place) for place in np.argsort(-errors, kind="stable")[:CLASSES])


def _sample(sample: GeneratedSample) -> dict[str, Any]:
    texts = {name: clip_text(getattr(sample, name)) for name in ("source", "target", "written")}
    return {**texts, "score": to_json(sample.score), "place": sample.place}


def _mistakes(mistakes: Mistakes) -> dict[str, Any]:
    return {
        "worst": [_mistake(mistake) for mistake in mistakes.worst[:MISTAKES]],
        "wrong": mistakes.wrong,
        "samples": mistakes.samples,
    }


def _mistake(mistake: Mistake) -> dict[str, Any]:
    text, gold, predicted = clip_spans(mistake.text, mistake.gold_spans, mistake.predicted_spans)
    out: dict[str, Any] = {
        "text": text,
        "beside": clip_text(mistake.beside),
        "gold": clip_text(mistake.gold),
        "predicted": clip_text(mistake.predicted),
        "gold_spans": gold,
        "predicted_spans": predicted,
        "confidence": to_json(mistake.confidence),
        "place": mistake.place,
    }
    return {name: value for name, value in out.items() if value or name in ("text", "confidence")}


def clip_text(text: str, letters: int = LETTERS) -> str:
    """Return the beginning of a long text, and its length."""
    return text if len(text) <= letters else f"{text[:letters]} … ({len(text):,} characters)"


Places = list[list[Any]]  # [start, end, label] of each span


def clip_spans(text: str, gold: tuple[Span, ...], predicted: tuple[Span, ...]) -> tuple[str, Places, Places]:
    """Clip a long text around the first span that only one side has; spans outside are omitted, spans across the border
    cut.
    """
    start, stop = 0, len(text)
    if len(text) > LETTERS:
        differ = set(gold) ^ set(predicted) or set(gold)
        start = max(0, min((span.start for span in differ), default=0) - MARGIN)
        stop = min(len(text), start + LETTERS)
    before, after = ("… " if start else ""), ("" if stop == len(text) else f" … ({len(text):,} characters)")
    shift = len(before) - start

    def shift_spans(spans: tuple[Span, ...]) -> Places:
        inside = [span for span in spans if span.end > start and span.start < stop]
        return [[max(s.start, start) + shift, min(s.end, stop) + shift, s.label] for s in sorted(inside, key=_place)]

    return before + text[start:stop] + after, shift_spans(gold), shift_spans(predicted)


def _place(span: Span) -> tuple[int, int, str]:
    return span.start, span.end, span.label
