"""The data of a report: small frozen values, rendered as a page or in the terminal. Empty parts are omitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from multihead.metrics import CalibrationBin, MetricTable, Score

# Display names of scores; other names are shown with spaces for dots and underscores.
NAMES = {
    "accuracy": "accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "weighted_f1": "weighted F1",
    "subset_accuracy": "subset accuracy",
    "f1": "F1",
    "mcc": "Matthews’ correlation",
    "ece": "calibration error (ECE)",
    "auc": "area under ROC",
    "exact": "exact match",
    "mrr": "mean reciprocal rank",
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    **{f"lead.rouge{n}": f"ROUGE-{n} of the first sentence" for n in "12L"},
    **{f"lead_short.rouge{n}": f"ROUGE-{n} of its first words" for n in "12L"},
    "loss": "loss (nats per token)",
    "strict.f1": "entity F1",
    "strict.precision": "entity precision",
    "strict.recall": "entity recall",
    "strict.macro_f1": "entity macro F1",
    "conlleval.f1": "entity F1, conlleval",
}


def display_name(name: str) -> str:
    """Return the display name: strict.f1 -> entity F1; by_letter.f1 -> by letter F1; names/strict.f1 -> names: entity
    F1.
    """
    task, _, name = name.rpartition("/")
    if task:
        return f"{task}: {display_name(name)}"
    words = name.replace(".", " ").replace("_", " ").split()
    return NAMES.get(name) or " ".join("F1" if word == "f1" else word for word in words)


@dataclass(frozen=True, slots=True)
class ConfusionMatrix:
    """Counts [gold][predicted], in the order of the labels."""

    labels: tuple[str, ...]
    counts: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        size = (len(self.labels), len(self.labels))
        if np.shape(self.counts) != size:
            raise ValueError(f"counts of shape {np.shape(self.counts)}; {size[0]} labels need {size}")


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """One line over the training steps. Curves with the same panel are drawn in one chart."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]
    panel: str

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.values):
            raise ValueError(f"curve {self.name!r}: {len(self.steps)} steps, {len(self.values)} values")


@dataclass(frozen=True, slots=True)
class Span:
    """Code points [start, end) of the text, as prediction objects count them."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True)
class Mistake:
    """One wrong prediction. Classes and numbers are in gold and predicted, marked text in the spans.

    beside: the second text of a pair, or the question.
    place: file:line.
    """

    text: str
    gold: str = ""
    predicted: str = ""
    gold_spans: tuple[Span, ...] = ()
    predicted_spans: tuple[Span, ...] = ()
    confidence: float | None = None
    place: str = ""
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Mistakes:
    """The worst mistakes first; wrong: their total number, among `samples`."""

    worst: tuple[Mistake, ...]
    wrong: int
    samples: int


@dataclass(frozen=True, slots=True)
class GeneratedSample:
    """A generated text, with its source and its reference. place: file:line."""

    source: str
    target: str
    written: str
    score: float | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class LengthHistogram:
    """Lengths of the inputs. counts[i]: inputs with edges[i] <= length < edges[i+1].

    Shares lie between 0 and 1; None: not measured.
    """

    edges: Sequence[float]
    counts: Sequence[int]
    unit: str = "tokens"
    of: str = ""  # which data
    limit: int | None = None  # longest window the model takes
    windowed: float | None = None  # share of inputs cut into windows
    padding: float | None = None  # share of padding in the batches
    truncated: int = 0  # truncated inputs

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(f"{len(self.counts)} bars need {len(self.counts) + 1} edges, not {len(self.edges)}")


@dataclass(frozen=True, slots=True)
class HeadTable:
    """Statistics of the heads of one stack and kind; name -> [layers, heads], nan where a head was pruned.

    Shares lie between 0 and 1; "entropy" is in nats, "offset" and "distance" in tokens.
    """

    statistics: Mapping[str, ArrayLike]
    stack: str = "encoder"
    kind: str = "self"
    note: str = ""  # the data it was measured on
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # role of heads -> addresses
    alike: Sequence[Sequence[str]] = ()  # addresses of heads with similar attention

    def __post_init__(self) -> None:
        shapes = {np.shape(matrix) for matrix in self.statistics.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2:
            raise ValueError(f"matrices of shape {sorted(shapes)}: expected [layers, heads], the same for all")

    def address(self, layer: int, head: int) -> str:
        """Return the address of a head: encoder.2.self.3."""
        return f"{self.stack}.{layer}.{self.kind}.{head}"


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A file and its SHA-256; note: its size or purpose."""

    name: str
    sha256: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """All data of one report. scores: the most important first; the first four are shown large."""

    title: str
    task: str
    date: str = ""
    command: str = ""
    scored_on: str = ""  # "test.txt, 3,453 sentences"
    scores: Mapping[str, Score] = field(default_factory=dict)
    tables: tuple[MetricTable, ...] = ()
    confusion: ConfusionMatrix | None = None
    curves: tuple[TrainingCurve, ...] = ()
    best_step: float | None = None  # the step of the saved weights
    mistakes: Mistakes | None = None
    samples: tuple[GeneratedSample, ...] = ()  # of generated text: the first ones
    calibration: tuple[CalibrationBin, ...] = ()
    lengths: LengthHistogram | None = None
    heads: tuple[HeadTable, ...] = ()
    run_file: str = ""
    digests: tuple[FileDigest, ...] = ()
    machine: str = ""
    warnings: tuple[str, ...] = ()
