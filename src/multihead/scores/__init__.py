"""Scores: predictions -> numbers, streaming, with confidence intervals."""

from multihead.scores.answers import Answers, exact_and_f1
from multihead.scores.bootstrap import Bootstrap, percentile
from multihead.scores.calibration import Bin
from multihead.scores.classes import Classes, MultiLabel
from multihead.scores.correlation import Pearson, Spearman
from multihead.scores.counts import Row, Table
from multihead.scores.likelihood import Likelihood
from multihead.scores.metric import Interval, Metric, Score, plain
from multihead.scores.paired import Difference, Flips, flips, mcnemar, paired
from multihead.scores.retrieval import Retrieval, ranks_of
from multihead.scores.spans import SCHEMES, Spans, spans
from multihead.scores.summaries import Summaries
from multihead.scores.tags import Tags
from multihead.scores.translations import Translations

__all__ = [
    "SCHEMES",
    "Answers",
    "Bin",
    "Bootstrap",
    "Classes",
    "Difference",
    "Flips",
    "Interval",
    "Likelihood",
    "Metric",
    "MultiLabel",
    "Pearson",
    "Retrieval",
    "Row",
    "Score",
    "Spans",
    "Spearman",
    "Summaries",
    "Table",
    "Tags",
    "Translations",
    "exact_and_f1",
    "flips",
    "mcnemar",
    "paired",
    "percentile",
    "plain",
    "ranks_of",
    "spans",
]
