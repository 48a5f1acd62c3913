"""Streaming metrics with confidence intervals."""

from multihead.metrics.bleu import BleuMetric
from multihead.metrics.bootstrap import Bootstrap, percentile
from multihead.metrics.calibration import CalibrationBin
from multihead.metrics.classification import ClassificationMetric, MultiLabelMetric
from multihead.metrics.correlation import Pearson, Spearman
from multihead.metrics.entities import SCHEMES, EntityMetric, entity_spans
from multihead.metrics.metric import ConfidenceInterval, Metric, Score, to_json
from multihead.metrics.perplexity import PerplexityMetric
from multihead.metrics.precision_recall import MetricRow, MetricTable
from multihead.metrics.retrieval import RetrievalMetric, ranks_of
from multihead.metrics.rouge import RougeMetric
from multihead.metrics.significance import Difference, Flips, compare_paired, count_flips, mcnemar
from multihead.metrics.squad import SquadMetric, exact_and_f1
from multihead.metrics.token_tags import TokenTagMetric

__all__ = [
    "SCHEMES",
    "BleuMetric",
    "Bootstrap",
    "CalibrationBin",
    "ClassificationMetric",
    "ConfidenceInterval",
    "Difference",
    "EntityMetric",
    "Flips",
    "Metric",
    "MetricRow",
    "MetricTable",
    "MultiLabelMetric",
    "Pearson",
    "PerplexityMetric",
    "RetrievalMetric",
    "RougeMetric",
    "Score",
    "Spearman",
    "SquadMetric",
    "TokenTagMetric",
    "compare_paired",
    "count_flips",
    "entity_spans",
    "exact_and_f1",
    "mcnemar",
    "percentile",
    "ranks_of",
    "to_json",
]
