"""Comparison of two models on the same data: whether their scores are comparable, and their difference."""

from __future__ import annotations

from collections.abc import Sequence

from multihead.metrics import Difference, compare_paired
from multihead.pruning.evaluation import with_score
from multihead.tasks import Prediction, Scorer, Task

BITS = "bits_per_byte"  # independent of the tokenization


def same_tokens(tasks: Sequence[Task]) -> bool:
    """Return whether both tasks use the same tokenizer."""
    first, second = (task.tokenizer.inner.to_str() for task in tasks)
    return first == second


def check_comparable(tasks: Sequence[Task], scorers: Sequence[Scorer]) -> str:
    """Return the score to compare in next-token prediction: a loss per token is not comparable between tokenizers."""
    if same_tokens(tasks):
        return scorers[0].main
    if all(BITS in scorer.result() for scorer in scorers):
        return BITS
    raise ValueError(
        f"the models have different tokenizers, so their {scorers[0].main} per token cannot be compared; compare "
        "models with the same tokenizer, or two of task generate on plain text, by bits per byte"
    )


def difference_of(first: Scorer, second: Scorer, name: str) -> Difference | None:
    """Return the second's score minus the first's, paired; None where their samples differ."""
    first_metric, second_metric = (with_score(scorer, name) for scorer in (first, second))
    return (
        compare_paired(first_metric, second_metric)[name]
        if first_metric.bootstrap_sample == second_metric.bootstrap_sample
        else None
    )


def shorten_prediction(prediction: Prediction) -> Prediction:
    """Return a prediction without the scores of every label."""
    return {name: value for name, value in prediction.items() if name != "scores"}


def verdict(p_value: float) -> str:
    """Return whether a p-value is significant at 0.05."""
    return "more than chance" if p_value < 0.05 else "may be chance"
