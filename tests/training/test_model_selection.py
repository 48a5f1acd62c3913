"""Which evaluation is kept as the best."""

from __future__ import annotations

import pytest

from multihead.metrics import Score
from multihead.training.model_selection import is_preferred


def said(value: float, **losses: float) -> dict[str, Score]:
    return {"bleu": Score(value, "percent"), **{n: Score(v, "number", "lower") for n, v in losses.items()}}


@pytest.mark.parametrize(
    ("scores", "best", "kept"),
    [
        (said(20.0), {}, True),
        (said(20.0, loss=9.0), {"score": 10.0, "loss": 1.0}, True),
        (said(20.0, loss=1.0), {"score": 30.0, "loss": 9.0}, False),
        (said(0.0, loss=3.0), {"score": 0.0, "loss": 4.0}, True),
        (said(0.0, loss=4.0), {"score": 0.0, "loss": 3.0}, False),
        (said(0.0, **{"a/loss": 1.0, "b/loss": 4.0}), {"score": 0.0, "loss": 4.5}, False),
        (said(0.0), {"score": 0.0, "loss": None}, True),
        (said(0.0, loss=4.0), {"score": 0.0}, True),  # of a run that an earlier version began
        (said(float("nan")), {"score": None, "loss": None}, True),
        (said(float("nan")), {"score": 1.0, "loss": None}, False),
    ],
)
def test_of_equal_scores_the_lower_loss_then_the_later_step(scores: dict[str, Score], best: dict, kept: bool) -> None:
    assert is_preferred(scores, "bleu", best) == kept


def test_a_run_keeps_the_last_of_equals_and_its_patience_ends(runs):
    run = runs.make("run", steps=60, eval_every=4, patience=4)
    list(run)
    scores = [line["valid"] for line in runs.log("run") if "valid" in line]
    steps = [line["step"] for line in runs.log("run") if "valid" in line]
    main = next(name for name in scores[0] if scores[-1][name] == run.best["score"])
    top = [step for step, score in zip(steps, scores, strict=True) if score[main] == run.best["score"]]
    assert len(top) > 1  # otherwise there is nothing to choose between
    assert run.best["step"] == top[-1]
    assert steps[-1] == top[0] + 4 * 4
