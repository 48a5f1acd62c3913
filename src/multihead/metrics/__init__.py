"""Scores: predictions -> numbers, streaming, with confidence intervals."""

from multihead.metrics.bleu import Translations
from multihead.metrics.bootstrap import Bootstrap, percentile
from multihead.metrics.calibration import Bin
from multihead.metrics.classification import Classes, MultiLabel
from multihead.metrics.correlation import Pearson, Spearman
from multihead.metrics.entities import SCHEMES, Spans, spans
from multihead.metrics.metric import Interval, Metric, Score, plain
from multihead.metrics.perplexity import Likelihood
from multihead.metrics.precision_recall import Row, Table
from multihead.metrics.retrieval import Retrieval, ranks_of
from multihead.metrics.rouge import Summaries
from multihead.metrics.significance import Difference, Flips, flips, mcnemar, paired
from multihead.metrics.squad import Answers, exact_and_f1
from multihead.metrics.token_tags import Tags

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
