"""Tasks that read say in bf16 what they say in fp32, but for its rounding; those that write refuse it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from multihead.inference import Pipeline
from multihead.inference.engine import evaluate, predict_rows
from tests.half_precision import WORKS, LinearDtypes
from tests.tasks.test_contract import ROWS, asked, make, train

READING = {
    **{name: (name, {}) for name in ("ner", "classify", "match", "answer")},
    "ner with a crf": ("ner", {"crf": True, "case": True}),
    "a bi-encoder": ("match", {"kind": "bi"}),
}


@pytest.mark.skipif(not WORKS.right, reason=f"bf16 here {WORKS.verdict}")
@pytest.mark.parametrize("which", READING)
def test_read_in_bf16(which: str) -> None:
    name, options = READING[which]
    model, task, rows = make(name, **options)
    train(model, task, rows, steps=30)
    found = []
    for one, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with LinearDtypes() as seen:
            found.append([said for _, said in predict_rows(model, task, asked(task, rows), precision=one)])
        assert seen.kinds == {kind}
    exact, rounded = (list(numbers(said)) for said in found)
    assert rounded == pytest.approx(exact, abs=0.05)
    scores = [evaluate(model, task, rows, 0, precision=one).result() for one in ("fp32", "bf16")]
    assert {*scores[0]} == {*scores[1]}


@pytest.mark.parametrize("name", [name for name in ROWS if name not in READING])
def test_what_scores_tokens_stays_in_fp32(name: str) -> None:
    model, task, _ = make(name)
    loaded = Pipeline(model, {}, task.tokenizer)
    with pytest.raises(ValueError, match="bf16 is for encoder tasks"):
        loaded.to("cpu", "bf16")
    assert loaded.to("cpu", "auto").precision == "fp32"


def test_no_such_precision() -> None:
    model, task, _ = make("classify")
    with pytest.raises(ValueError, match="unknown precision 'fp8' for inference; use one of auto, fp32, bf16"):
        Pipeline(model, {}, task.tokenizer).to("cpu", "fp8")


def numbers(said: Any) -> Any:
    """All numbers of predictions, in their order; which of two near equals comes first is not asked."""
    if isinstance(said, float):
        yield said
    elif isinstance(said, dict):
        for key in sorted(said):
            yield from numbers(said[key])
    elif isinstance(said, list | tuple):
        for one in said:
            yield from numbers(one)
