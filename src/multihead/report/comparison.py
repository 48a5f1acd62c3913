"""Two models on the same data: may their scores be compared, and how far do they differ?"""

from __future__ import annotations

from collections.abc import Sequence

from multihead.metrics import Difference, compare_paired
from multihead.pruning.evaluation import with_score
from multihead.tasks import Prediction, Scorer, Task

BITS = "bits_per_byte"  # of a text, whatever its tokens


def same_tokens(tasks: Sequence[Task]) -> bool:
    """Do they cut texts into the same tokens?"""
    first, second = (task.tokenizer.inner.to_str() for task in tasks)
    return first == second


def check_comparable(tasks: Sequence[Task], scorers: Sequence[Scorer]) -> str:
    """The score that decides, of texts that are foretold: a loss per token means nothing where tokens differ."""
    if same_tokens(tasks):
        return scorers[0].main
    if all(BITS in scorer.result() for scorer in scorers):
        return BITS
    raise ValueError(
        f"the two cut texts into different tokens, so their {scorers[0].main} per token cannot be compared; compare "
        "models with one tokenizer, or two of generate on plain text, by bits per byte"
    )


def difference_of(first: Scorer, second: Scorer, name: str) -> Difference | None:
    """The second's score minus the first's, paired; None where they did not see the same samples."""
    one, other = (with_score(scorer, name) for scorer in (first, second))
    return compare_paired(one, other)[name] if one.bootstrap_sample == other.bootstrap_sample else None


def shorten_prediction(prediction: Prediction) -> Prediction:
    """Without the scores of every label."""
    return {name: value for name, value in prediction.items() if name != "scores"}


def verdict(p_value: float) -> str:
    return "more than chance" if p_value < 0.05 else "may be chance"
